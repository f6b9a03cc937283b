#pragma once

#include "ns3/node.h"
#include "ns3/socket.h"

namespace sopa
{

// Create a sending socket with the legacy loss recovery of ns-3 3.20 (up to 3.24): NewReno by RFC 2582 without its section 5, no
// selective acknowledgements, no limited transmit. ns-3 3.37 estimates the bytes in flight from inferred selective acknowledgements
// and reduces the window proportionally; under reordering the two differ considerably.
ns3::Ptr<ns3::Socket> CreateLegacyNewReno(ns3::Ptr<ns3::Node> node);

} // namespace sopa
