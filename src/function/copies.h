// Facts that a function has to know where several servers have the same connections
// (src/replicate).
#pragma once

#include <memory>

namespace millrace {

class Grants;

/// A server's share of what a function gives its customers, such as ports: no two servers may give
/// the same.
struct Share {
  unsigned number = 0;  ///< in a pair: the share's, below `of`
  unsigned of = 1;      ///< number of shares; 1: there is no other server, or it is a cluster
  std::shared_ptr<const Grants> grants;  ///< in a cluster (grants.h); else null
};

/// The state of the other server's connections, as far as it is known here. A cluster's differs by
/// shard (grants.h).
struct CopiesState {
  /// No process that was here, or there, before this one can have connections that this one does
  /// not know. Until then the function gives customers nothing.
  bool has_settled = true;
  bool both_are_new = true;  ///< neither server has given anything before
  /// The other server has no connection that has ended here, but for a second at most.
  bool is_sure = true;
};

}  // namespace millrace
