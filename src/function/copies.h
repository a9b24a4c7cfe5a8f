// Facts that a function has to know where two servers have the same connections (src/replicate).
#pragma once

namespace millrace {

/// A server's share of what a function gives its customers, such as ports: no two servers may give
/// the same.
struct Share {
  unsigned number = 0;  ///< the share's, below `of`
  unsigned of = 1;      ///< number of shares; 1: there is no other server
};

/// The state of the other server's connections, as far as it is known here.
struct CopiesState {
  /// No process that was here, or there, before this one can have connections that this one does
  /// not know. Until then the function gives customers nothing.
  bool has_settled = true;
  bool both_are_new = true;  ///< neither server has given anything before
  /// The other server has no connection that has ended here, but for a second at most.
  bool is_sure = true;
};

}  // namespace millrace
