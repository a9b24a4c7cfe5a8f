// What a host sends by: a port's side.
#pragma once

#include "core/outgoing.h"

namespace millrace {

class Wire {
 public:
  virtual ~Wire() = default;
  /// A frame of its own with room for `bytes`; `data` is null where no memory is left.
  virtual Outgoing make(unsigned bytes) = 0;
  /// Sends a frame that `make` made, or that was held.
  virtual void send(const Outgoing& frame) = 0;
  /// Lets go one that was made, or held.
  virtual void drop(Handle handle) = 0;
  /// @name Called for links that have an interface of the kernel's only
  /// @{
  /// Gives the kernel a frame that came on such a link; its memory is let go. False: there is no
  /// room, and it stays the caller's.
  virtual bool give_to_kernel(Handle /*handle*/, unsigned /*link*/) { return false; }
  /// Gives it to the kernel, too, if there is room. From then on nobody may change the frame.
  virtual void show_to_kernel(Handle /*handle*/, unsigned /*link*/) {}
  /// @}
  /// The link on which a packet came.
  virtual unsigned link_of(Handle handle) const = 0;
};

}  // namespace millrace
