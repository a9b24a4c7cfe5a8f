// The interface by which a host sends; a port implements it.
#pragma once

#include "core/outgoing.h"

namespace millrace {

class Wire {
 public:
  virtual ~Wire() = default;
  /// Makes a frame with room for `bytes`; `data` is null if no memory is left.
  virtual Outgoing make(unsigned bytes) = 0;
  /// Sends a frame that came from `make`, was held or is the kernel's, and takes its memory.
  virtual void send(const Outgoing& frame) = 0;
  /// Sends a frame that was held until its next hop was known, before all packets of the present
  /// burst: these may be later ones of the same connection.
  virtual void release(const Outgoing& frame) { send(frame); }
  /// Takes a frame that came from `make` as if it had come on its link: a function may receive
  /// packets at its destination, an address of the host.
  virtual void take_in(const Outgoing& frame) { drop(frame.handle); }
  /// Frees a frame that came from `make` or was held.
  virtual void drop(Handle handle) = 0;
  /// @name Called only for links with a kernel interface
  /// @{
  /// Gives the kernel a frame that came on such a link, and frees it. False: there is no room, and
  /// the caller keeps the frame.
  virtual bool give_to_kernel(Handle /*handle*/, unsigned /*link*/) { return false; }
  /// Gives the kernel a reference to a frame that came on such a link. The caller keeps the frame,
  /// and must not change it any more. Without room the kernel misses the frame.
  virtual void show_to_kernel(Handle /*handle*/, unsigned /*link*/) {}
  /// @}
};

}  // namespace millrace
