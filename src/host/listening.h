// The listener by which a neighbour cache calls its host back during a burst or a tick.
#pragma once

#include <cstring>

#include "host/host_for.h"

namespace millrace {

template <class A>
class HostFor<A>::Listening final : public Neighbours<A>::Listener {
 public:
  Listening(HostFor& host, Wire& wire, Tick now) : host_(host), wire_(wire), now_(now) {}

  void ask(const Neighbourhood& on, const A& target, const Mac* one) override {
    Outgoing frame = wire_.make(kNoticeBytes);
    if (frame.data == nullptr) return;
    frame.length = write_question(frame.data, common().links[on.link].mac,
                                  host_.asker(on.link, target), target, one);
    common().send_on(on, frame, wire_);
  }
  void resolved(std::uint32_t id, const Mac& mac) override {
    for (const HeldFrame& held : common().take_held(id, A::kBytes == 4)) {
      std::memcpy(held.frame.data, mac.bytes.data(), mac.bytes.size());
      auto& counters = common().counters;
      (held.is_own ? counters.generated : counters.released).add(1);
      wire_.release(held.frame);
    }
  }
  void failed(std::uint32_t id) override {
    for (const HeldFrame& held : common().take_held(id, A::kBytes == 4)) {
      if (!held.is_own) common().counters.unresolved.add(1);
      if (held.is_as_it_came)
        host_.tell(IcmpError::host_unreachable,
                   {held.frame.data, held.headers, held.frame.length, held.came_on}, std::nullopt,
                   now_, wire_);
      wire_.drop(held.frame.handle);
    }
  }

 private:
  HostCommon& common() { return host_.common_; }

  HostFor& host_;
  Wire& wire_;
  Tick now_;
};

}  // namespace millrace
