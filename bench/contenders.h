// Who takes part: all tables and their variants, and peers that are no choice in millrace itself.
#pragma once

#include "bench/peer/boost_flat.h"
#include "bench/peer/libcuckoo.h"
#include "conntrack/schemes.h"

namespace millrace::bench {

/// A table that only takes part in benchmarks.
template <template <class> class T>
using PeerTable = TableScheme<T>;

// A line a table, as in conntrack/schemes.h; their number stands in CMakeLists.txt, too. The build
// leaves the last out where Boost is too old.
using PeerTables = SchemeList<  //
#ifdef MILLRACE_BOOST_FLAT
    PeerTable<Libcuckoo>,  //
    PeerTable<BoostFlat>
#else
    PeerTable<Libcuckoo>
#endif
    >;

#ifdef MILLRACE_COVERING
using AllContenders = First<MILLRACE_FEW, TableSchemes>::Type;
#else
using AllContenders = Joined<AllTables, PeerTables>::Type;
#endif

}  // namespace millrace::bench
