// Sends datagrams of many UDP conversations through a device that should lose no datagram, and
// measures each datagram's round-trip time:
//
//   datagrams serve ADDRESS PORT             echoes each datagram, until the process is killed
//   datagrams send ADDRESS PORT FLOWS PACKETS_A_SECOND SECONDS IN_A_ROW
//
// The conversations take turns; each sends IN_A_ROW datagrams in a row, because a device changes
// the order only of packets that follow each other closely.
//
// Prints a JSON object: datagrams sent, echoed and lost, echoes that came twice, echoes that came
// behind the echo of a later datagram of their conversation, round-trip times in microseconds, and
// the longest time for which a conversation with a pending datagram got no echo.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(std::string_view what) {
  fmt::print(stderr, "datagrams: {}: {}\n", what, std::strerror(errno));
  std::exit(1);
}

std::int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

struct Address {
  sockaddr_storage of{};
  socklen_t size = 0;

  Address(const char* text, int port) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(of);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(of);
    const auto order = htons(static_cast<std::uint16_t>(port));
    if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
      v4.sin_family = AF_INET;
      v4.sin_port = order;
      size = sizeof(v4);
    } else if (::inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) {
      v6.sin6_family = AF_INET6;
      v6.sin6_port = order;
      size = sizeof(v6);
    } else {
      errno = EINVAL;
      fail(text);
    }
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&of); }
};

void serve(const Address& at) {
  const int socket = ::socket(at.get()->sa_family, SOCK_DGRAM, 0);
  if (socket < 0) fail("socket");
  const int room = 8 << 20;
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
  if (::bind(socket, at.get(), at.size) != 0) fail("bind");
  std::array<char, 2048> data;
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    auto* const sender = reinterpret_cast<sockaddr*>(&from);
    const ssize_t got = ::recvfrom(socket, data.data(), data.size(), 0, sender, &size);
    if (got > 0) ::sendto(socket, data.data(), static_cast<std::size_t>(got), 0, sender, size);
  }
}

struct Message {
  std::uint64_t number;
  std::int64_t sent_ns;
};

struct Flow {
  int socket = -1;
  std::uint64_t next_number = 0;         // the highest echoed number, plus 1
  std::int64_t unanswered_since_ns = 0;  // 0: nothing is pending
};

class Client {
 public:
  Client(const Address& to, unsigned flows, unsigned in_a_row)
      : flows_(flows), in_a_row_(in_a_row), epoll_(::epoll_create1(0)) {
    for (unsigned n = 0; n < flows; ++n) {
      const int socket = ::socket(to.get()->sa_family, SOCK_DGRAM | SOCK_NONBLOCK, 0);
      if (socket < 0) fail("socket");
      if (::connect(socket, to.get(), to.size) != 0) fail("connect");
      epoll_event event{.events = EPOLLIN, .data = {.u32 = n}};
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event);
      flows_[n].socket = socket;
    }
  }

  void run(double rate, double seconds) {
    const std::int64_t start = now_ns();
    const auto end = start + static_cast<std::int64_t>(seconds * 1e9);
    std::uint64_t sent = 0;
    for (std::int64_t now = start; now < end; now = now_ns()) {
      const auto due = static_cast<std::uint64_t>(static_cast<double>(now - start) * 1e-9 * rate);
      for (unsigned n = 0; n < 32 && sent < due; ++n) send(sent++);
      receive(0);
    }
    // Echoes may still come for five seconds: such datagrams are late, not lost.
    const std::int64_t last = now_ns() + 5'000'000'000;
    while (now_ns() < last && answered_ < sent_) receive(10);
    for (const Flow& flow : flows_) {
      if (flow.unanswered_since_ns != 0)
        longest_gap_ns_ = std::max(longest_gap_ns_, end - flow.unanswered_since_ns);
    }
  }

  void print() {
    std::ranges::sort(took_us_);
    const auto at = [this](double share) {
      if (took_us_.empty()) return 0U;
      const auto place = static_cast<std::size_t>(share * static_cast<double>(took_us_.size()));
      return took_us_[std::min(place, took_us_.size() - 1)];
    };
    fmt::print(
        "{{\"sent\": {}, \"answered\": {}, \"lost\": {}, \"twice\": {}, "
        "\"out_of_order\": {}, \"not_sent\": {}, "
        "\"us_50\": {}, \"us_90\": {}, \"us_99\": {}, \"us_99.9\": {}, \"us_99.99\": {}, "
        "\"us_most\": {}, "
        "\"longest_gap_ms\": {:.1f}}}\n",
        sent_, answered_, sent_ - answered_, twice_, out_of_order_, not_sent_, at(0.5), at(0.9),
        at(0.99), at(0.999), at(0.9999), at(1), static_cast<double>(longest_gap_ns_) * 1e-6);
  }

 private:
  void send(std::uint64_t number) {
    const auto n = static_cast<std::uint32_t>(number / in_a_row_ % flows_.size());
    Flow& flow = flows_[n];
    const Message message{sent_, now_ns()};
    if (::send(flow.socket, &message, sizeof(message), 0) != sizeof(message)) {
      ++not_sent_;
      return;
    }
    ++sent_;
    is_answered_.push_back(false);
    if (flow.unanswered_since_ns == 0) flow.unanswered_since_ns = message.sent_ns;
  }

  void receive(int wait_ms) {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), wait_ms);
    for (int i = 0; i < count; ++i) {
      Flow& flow = flows_[events[static_cast<std::size_t>(i)].data.u32];
      Message message;
      while (::recv(flow.socket, &message, sizeof(message), 0) == sizeof(message)) {
        const std::int64_t now = now_ns();
        if (is_answered_.at(message.number)) {
          ++twice_;
          continue;
        }
        is_answered_[message.number] = true;
        ++answered_;
        if (message.number < flow.next_number) ++out_of_order_;
        flow.next_number = std::max(flow.next_number, message.number + 1);
        took_us_.push_back(static_cast<std::uint32_t>((now - message.sent_ns) / 1000));
        if (flow.unanswered_since_ns == 0) continue;
        longest_gap_ns_ = std::max(longest_gap_ns_, now - flow.unanswered_since_ns);
        flow.unanswered_since_ns = 0;
      }
    }
  }

  std::vector<Flow> flows_;
  unsigned in_a_row_;
  int epoll_;
  std::uint64_t sent_ = 0;
  std::uint64_t not_sent_ = 0;
  std::uint64_t answered_ = 0;
  std::uint64_t twice_ = 0;         // second echoes of a datagram
  std::uint64_t out_of_order_ = 0;  // echoes behind the echo of a later datagram
  std::vector<bool> is_answered_;
  std::int64_t longest_gap_ns_ = 0;
  std::vector<std::uint32_t> took_us_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "serve") {
    serve(Address(words[1].c_str(), std::stoi(words[2])));
  } else if (words.size() == 7 && words[0] == "send") {
    const rlimit files{1 << 17, 1 << 17};
    ::setrlimit(RLIMIT_NOFILE, &files);
    Client client(Address(words[1].c_str(), std::stoi(words[2])),
                  static_cast<unsigned>(std::stoul(words[3])),
                  static_cast<unsigned>(std::stoul(words[6])));
    client.run(std::stod(words[4]), std::stod(words[5]));
    client.print();
  } else {
    fmt::print(stderr,
               "datagrams serve ADDRESS PORT | send ADDRESS PORT FLOWS RATE SECONDS IN_A_ROW\n");
    return 2;
  }
}
