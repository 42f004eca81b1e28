#include "memory/drive_tree.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "memory/pseudo_file.hpp"

namespace sluice::memory {
namespace {

namespace fs = std::filesystem;

// RAID on LUKS on LVM on a loop device in a file on RAID: nobody goes further, but links may go in a circle.
constexpr int kMostLayers = 16;

std::string first_line(const fs::path& path) {
  const std::string text = read_pseudo_file(path.string()).value_or("");
  return text.substr(0, text.find('\n'));
}

// The node of the first ancestor that names one: a drive itself does not say, its controller does.
int node_above(const fs::path& device, const std::string& root) {
  const fs::path end = root + "/sys/devices";
  for (fs::path folder = device; folder.has_relative_path() && folder != end; folder = folder.parent_path()) {
    const std::string text = first_line(folder / "numa_node");
    int node = kUnknownNode;
    std::from_chars(text.data(), text.data() + text.size(), node);
    if (node >= 0) return node;
  }
  return kUnknownNode;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    paths.push_back(at->path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// A drive behind several controllers lies in its subsystem's folder beside links to them:
// /sys/devices/virtual/nvme-subsystem/nvme-subsys0/{nvme0n1,nvme0,nvme1}.
std::vector<int> nodes_of_attached(const fs::path& device, const std::string& root) {
  std::set<int> nodes;
  const fs::path parent = device.parent_path();
  if (parent.filename().string().starts_with("nvme-subsys")) {
    for (const fs::path& entry : entries(parent)) {
      std::error_code error;
      const fs::path controller = fs::canonical(entry, error);
      if (!error && fs::is_symlink(entry, error) && controller.filename().string().starts_with("nvme"))
        nodes.insert(node_above(controller, root));
    }
  }
  if (nodes.empty()) nodes.insert(node_above(device, root));
  return {nodes.begin(), nodes.end()};
}

std::optional<BlockDevice> read_device(const std::string& number, const std::string& root, int layers);

// The device that a mount is on: by its number, or, where the file system numbers itself (btrfs, zfs), by the
// name of its source.
std::optional<BlockDevice> device_of(const Mount& mount, const std::string& root, int layers) {
  if (std::optional<BlockDevice> device = read_device(mount.device, root, layers)) return device;
  if (!mount.source.starts_with("/dev/")) return std::nullopt;
  std::error_code error;
  const fs::path node = fs::canonical(root + mount.source, error);  // /dev/mapper/a is a link to /dev/dm-0
  if (error) return std::nullopt;
  return read_device(first_line(fs::path(root + "/sys/class/block") / node.filename() / "dev"), root, layers);
}

std::optional<Mount> find_mount(const std::string& path, const std::string& root) {
  std::error_code error;
  const std::string real = fs::canonical(root + path, error).string();
  const std::string real_root = root.empty() ? "" : fs::canonical(root, error).string();
  if (error || !real.starts_with(real_root)) return std::nullopt;
  const std::string inside = real.substr(real_root.size());
  return mount_of(read_mounts(root), inside.empty() ? "/" : inside);
}

std::optional<BlockDevice> read_device(const std::string& number, const std::string& root, int layers) {
  if (number.empty() || layers == 0) return std::nullopt;
  std::error_code error;
  const fs::path folder = fs::canonical(root + "/sys/dev/block/" + number, error);
  if (error) return std::nullopt;
  BlockDevice device{.number = number,
                     .name = folder.filename().string(),
                     .folder = folder.string(),
                     .below = {},
                     .numa_nodes = {}};
  const auto add = [&](std::optional<BlockDevice> below) {
    if (below) device.below.push_back(*std::move(below));
  };
  if (fs::exists(folder / "partition", error))
    add(read_device(first_line(folder.parent_path() / "dev"), root, layers - 1));
  for (const fs::path& part : entries(folder / "slaves"))
    add(read_device(first_line(part / "dev"), root, layers - 1));
  if (const std::string file = first_line(folder / "loop/backing_file"); !file.empty()) {
    if (const std::optional<Mount> mount = find_mount(file, root)) add(device_of(*mount, root, layers - 1));
  }
  if (device.below.empty()) device.numa_nodes = nodes_of_attached(folder, root);
  return device;
}

}  // namespace

DrivePlace find_drive(const std::string& directory, const std::string& root) {
  DrivePlace place;
  place.mount = find_mount(directory, root);
  if (place.mount) place.device = device_of(*place.mount, root, kMostLayers);
  return place;
}

std::vector<const BlockDevice*> attached_devices(const BlockDevice& device) {
  if (device.below.empty()) return {&device};
  std::vector<const BlockDevice*> attached;
  for (const BlockDevice& part : device.below) {
    const std::vector<const BlockDevice*> of_part = attached_devices(part);
    attached.insert(attached.end(), of_part.begin(), of_part.end());
  }
  return attached;
}

std::vector<int> numa_nodes_of(const BlockDevice& device) {
  std::set<int> nodes;
  for (const BlockDevice* attached : attached_devices(device))
    nodes.insert(attached->numa_nodes.begin(), attached->numa_nodes.end());
  return {nodes.begin(), nodes.end()};
}

}  // namespace sluice::memory
