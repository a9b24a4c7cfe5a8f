// The list of contenders: all tables, their variants, and peers. A configuration can name neither
// variants nor peers.
#pragma once

#include "bench/peer/boost_flat.h"
#include "bench/peer/libcuckoo.h"
#include "conntrack/schemes.h"

namespace millrace::bench {

/// A table that only takes part in benchmarks.
template <template <class> class T>
using PeerTable = TableScheme<T>;

// One line a table, as in conntrack/schemes.h. CMakeLists.txt has the number of these tables
// (`peers`). The build leaves out the last table if Boost is too old.
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
