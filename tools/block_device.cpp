#include "tools/block_device.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>

#include "tools/pseudo_files.hpp"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLeastQueued = 64;
constexpr std::uint64_t kLeastRequestKib = 256;

std::string setting(const memory::BlockDevice& device, const char* file) {
  return first_line(device.folder + "/" + file);
}

std::optional<std::uint64_t> number(const memory::BlockDevice& device, const char* file) {
  const std::string text = setting(device, file);
  std::uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

bool is_partition(const memory::BlockDevice& device) { return !setting(device, "partition").empty(); }
bool is_loop(const memory::BlockDevice& device) { return !setting(device, "loop/backing_file").empty(); }
bool is_memory(const memory::BlockDevice& device) {
  return device.name.starts_with("zram") || device.name.starts_with("ram") || device.name.starts_with("pmem");
}
// A paravirtual drive says it rotates, whatever is behind it.
bool is_virtual(const memory::BlockDevice& device) {
  return device.name.starts_with("vd") || device.name.starts_with("xvd");
}
bool is_encrypted(const memory::BlockDevice& device) {
  return setting(device, "dm/uuid").starts_with("CRYPT-");
}

std::string mapping_kind(const memory::BlockDevice& device) {
  const std::string uuid = setting(device, "dm/uuid");
  const std::string name = setting(device, "dm/name");
  if (uuid.starts_with("LVM-")) return "LVM volume " + name;
  if (uuid.starts_with("CRYPT-LUKS")) return "LUKS volume " + name;
  if (uuid.starts_with("CRYPT-")) return "encrypted volume " + name;
  if (uuid.starts_with("mpath-")) return "multipath " + name;
  return "mapping " + name;
}

std::string kind(const memory::BlockDevice& device) {
  if (is_partition(device)) return "partition";
  if (!setting(device, "dm/name").empty()) return mapping_kind(device);
  if (const std::string level = setting(device, "md/level"); !level.empty())
    return fmt::format("{} of {}", level, setting(device, "md/raid_disks"));
  if (const std::string file = setting(device, "loop/backing_file"); !file.empty())
    return fmt::format("loop over {}, direct I/O {}", file,
                       setting(device, "loop/dio") == "1" ? "on" : "off");
  if (is_memory(device)) return "memory";
  std::string text = setting(device, "device/model");
  if (!text.empty()) text += ", ";
  if (is_virtual(device)) return text + "virtual";
  return text + (setting(device, "queue/rotational") == "1" ? "rotational" : "not rotational");
}

void add_queue_findings(const memory::BlockDevice& device, Findings& findings) {
  const std::string folder = "/sys/block/" + device.name + "/queue";
  const std::string scheduler = chosen_of(setting(device, "queue/scheduler"));
  const auto requests = number(device, "queue/nr_requests");
  const auto most_kib = number(device, "queue/max_sectors_kb");
  const auto hardware_kib = number(device, "queue/max_hw_sectors_kb");
  if (scheduler.empty() && !requests && !most_kib) return;
  findings.add(fmt::format(
      "{}: scheduler {}, nr_requests {}, max_sectors_kb {}, write cache {}", device.name,
      scheduler.empty() ? "unknown" : scheduler, requests.value_or(0), most_kib.value_or(0),
      setting(device, "queue/write_cache").empty() ? "unknown" : setting(device, "queue/write_cache")));
  const bool nvme = device.name.starts_with("nvme");
  if (scheduler == "bfq" || (nvme && !scheduler.empty() && scheduler != "none"))
    findings.add(fmt::format("{}: the scheduler {} costs time a request", device.name, scheduler),
                 fmt::format("echo none > {}/scheduler", folder));
  if (requests && *requests < kLeastQueued)
    findings.add(fmt::format("{}: only {} requests queue", device.name, *requests),
                 fmt::format("echo {} > {}/nr_requests", 4 * kLeastQueued, folder));
  if (most_kib && hardware_kib && *most_kib < kLeastRequestKib && *most_kib < *hardware_kib)
    findings.add(
        fmt::format("{}: requests are cut to {} KiB", device.name, *most_kib),
        fmt::format("echo {} > {}/max_sectors_kb", std::min<std::uint64_t>(*hardware_kib, 1024), folder));
}

void add_raid_findings(const memory::BlockDevice& device, Findings& findings) {
  const std::string level = setting(device, "md/level");
  if (level.empty()) return;
  if (number(device, "md/degraded").value_or(0) > 0)
    findings.add(fmt::format("{} lacks {} of its drives", device.name, *number(device, "md/degraded")),
                 fmt::format("mdadm --detail /dev/{}, and replace what failed", device.name));
  if (level == "raid4" || level == "raid5" || level == "raid6")
    findings.add(fmt::format("{} writes parity", device.name),
                 "raid0, or a directory on each drive (--dir once a drive): Sluice spreads over them");
  if (level == "raid1" || level == "raid10")
    findings.add(fmt::format("{} writes everything twice", device.name),
                 "raid0, or a directory on each drive (--dir once a drive): Sluice spreads over them");
}

}  // namespace

std::string describe_device(const memory::BlockDevice& device) {
  std::string text = fmt::format("{} ({})", device.name, kind(device));
  if (device.below.empty()) return text;
  std::string below;
  for (const memory::BlockDevice& part : device.below) {
    if (!below.empty()) below += ", ";
    below += describe_device(part);
  }
  return text + " on " + (device.below.size() == 1 ? below : "[" + below + "]");
}

void add_device_findings(const memory::BlockDevice& device, Findings& findings) {
  add_raid_findings(device, findings);
  if (is_encrypted(device))
    findings.add(device.name + " encrypts, which costs CPU time a byte",
                 "a drive without dm-crypt, or cryptsetup refresh --perf-no_read_workqueue "
                 "--perf-no_write_workqueue " +
                     setting(device, "dm/name"));
  if (is_loop(device) && setting(device, "loop/dio") != "1")
    findings.add(device.name + " goes through the page cache",
                 fmt::format("losetup --direct-io=on /dev/{}", device.name));
  if (device.below.empty()) {
    if (is_memory(device))
      findings.add(device.name + " is memory", "name a directory on a drive");
    else if (!is_virtual(device) && setting(device, "queue/rotational") == "1" && !is_loop(device))
      findings.add(device.name + " rotates", "use a solid-state drive");
    add_queue_findings(device, findings);
  }
  for (const memory::BlockDevice& part : device.below) add_device_findings(part, findings);
}

std::optional<std::uint64_t> bytes_written(const memory::BlockDevice& device) {
  const memory::BlockDevice& whole = is_partition(device) && !device.below.empty() ? device.below[0] : device;
  std::ifstream file(whole.folder + "/stat");
  std::uint64_t reads, reads_merged, sectors_read, read_ms, writes, writes_merged, sectors_written;
  file >> reads >> reads_merged >> sectors_read >> read_ms >> writes >> writes_merged >> sectors_written;
  if (!file) return std::nullopt;
  return sectors_written * 512;
}

}  // namespace sluice::tools
