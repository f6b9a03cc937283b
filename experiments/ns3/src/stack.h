// A host: IPv4 and TCP of ns-3 over one interface.
#pragma once

#include "device.h"

#include "ns3/node.h"

namespace sopa
{

// Install IPv4, TCP and the device on a node.
ns3::Ptr<Device> InstallStack(ns3::Ptr<ns3::Node> node, Fabric& fabric, Host host);

} // namespace sopa
