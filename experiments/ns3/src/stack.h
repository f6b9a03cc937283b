// A host: ns-3's IPv4 and TCP over one interface.
#pragma once

#include "device.h"

#include "ns3/node.h"

namespace sopa
{

// Give a node addresses, TCP and its interface.
ns3::Ptr<Device> InstallStack(ns3::Ptr<ns3::Node> node, Fabric& fabric, Host host, const Settings& settings);

} // namespace sopa
