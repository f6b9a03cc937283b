#pragma once

#include "ns3/node.h"
#include "ns3/socket.h"

namespace sopa
{

// A connection's sender whose loss recovery is NewReno as ns-3 had it before 3.25 (RFC 2582 without its section 5, no
// selective acknowledgements, no limited transmit). ns-3 3.37 counts what is in flight from guessed selective
// acknowledgements and reduces proportionally; where packets come late rather than never, the two differ by much.
ns3::Ptr<ns3::Socket> CreateNewReno(ns3::Ptr<ns3::Node> node);

} // namespace sopa
