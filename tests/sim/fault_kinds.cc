#include "tests/sim/fault_kinds.h"

namespace sarsen::sim {

std::string_view name_of(FaultKind kind) {
  static constexpr std::array<std::string_view, kFaultKinds> kNames = {
      "D1 latency",
      "D2 reorder",
      "D3 drop un-flushed",
      "D4 torn write",
      "D5 garbage",
      "D6 bit rot",
      "D7 read error",
      "D8 write error",
      "D9 flush error",
      "D10 misdirected write",
      "D11 misdirected read",
      "D12 lost write",
      "D13 stale read",
      "D14 no space",
      "D15 device vanishes",
      "D16 flush lies",
      "N1 delay",
      "N2 loss",
      "N3 duplicate",
      "N4 reorder",
      "N5 clog",
      "N6 swizzle-clog",
      "N7 partition",
      "N8 reset mid frame",
      "N9 half-open",
      "N10 byte flip",
      "N11 slow receiver",
      "N12 late frames",
      "P1 crash",
      "P2 crash at fault point",
      "P3 power loss",
      "P4 power loss of all",
      "P5 pause",
      "P6 crash in recovery",
      "P7 crash loop",
      "P8 replaced",
      "P9 version change",
      "P10 clock jump",
      "P11 clock drift",
      "P12 no map store",
      "P13 client dies",
      "P14 forced detach",
      "P15 racing admin",
      "P16 no memory",
  };
  return kNames[index_of(kind)];
}

}  // namespace sarsen::sim
