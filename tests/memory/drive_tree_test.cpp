#include "memory/drive_tree.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/system_tree.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::memory {
namespace {

using testing::ElementsAre;

class DriveTree : public testing::Test {
 protected:
  DriveTree() { tree_.make_folder("/data"); }

  // An NVMe drive whose controller's PCI function is at a node.
  void add_nvme(int index, int node) {
    const std::string pci = "pci0000:0" + std::to_string(index) + "/0000:01:00.0";
    tree_.put("/sys/devices/" + pci + "/numa_node", std::to_string(node) + "\n");
    tree_.add_device("259:" + std::to_string(16 * index),
                     pci + "/nvme/" + nvme(index) + "/" + nvme(index) + "n1");
  }
  void add_partition(int index) {
    const std::string name = nvme(index) + "n1p1";
    const std::string folder = "pci0000:0" + std::to_string(index) + "/0000:01:00.0/nvme/" + nvme(index) +
                               "/" + nvme(index) + "n1/" + name;
    tree_.add_device("259:" + std::to_string(16 * index + 1), folder);
    tree_.put("/sys/devices/" + folder + "/partition", "1\n");
  }
  // A device over others, each given as a name of /sys/class/block.
  void add_over(const std::string& number, const std::string& name, const std::vector<std::string>& parts) {
    tree_.add_device(number, "virtual/block/" + name);
    for (const std::string& part : parts)
      tree_.link("/sys/devices/virtual/block/" + name + "/slaves/" + part, "/sys/class/block/" + part);
  }
  static std::string nvme(int index) { return "nvme" + std::to_string(index); }

  DrivePlace find() const { return find_drive("/data", tree_.root()); }
  static std::vector<std::string> names(const BlockDevice& device) {
    std::vector<std::string> found;
    for (const BlockDevice* one : attached_devices(device)) found.push_back(one->name);
    return found;
  }

  sim::SystemTree tree_;
};

TEST_F(DriveTree, WithoutProcAndSysNothingIsKnown) {
  const DrivePlace place = find();
  EXPECT_FALSE(place.mount);
  EXPECT_FALSE(place.device);
}

TEST_F(DriveTree, MemoryHasAMountAndNoDevice) {
  tree_.mount("0:30 / /data rw - tmpfs tmpfs rw");
  const DrivePlace place = find();
  ASSERT_TRUE(place.mount);
  EXPECT_EQ(place.mount->type, "tmpfs");
  EXPECT_FALSE(place.device);
}

TEST_F(DriveTree, APartitionLeadsToItsDriveAndTheNodeOfItsController) {
  add_nvme(1, 1);
  add_partition(1);
  tree_.mount("259:17 / /data rw - ext4 /dev/nvme1n1p1 rw");
  const DrivePlace place = find();
  ASSERT_TRUE(place.device);
  EXPECT_EQ(place.device->name, "nvme1n1p1");
  EXPECT_THAT(names(*place.device), ElementsAre("nvme1n1"));
  EXPECT_THAT(numa_nodes_of(*place.device), ElementsAre(1));
}

TEST_F(DriveTree, ANodeOfMinusOneIsUnknown) {
  add_nvme(0, -1);
  tree_.mount("259:0 / /data rw - ext4 /dev/nvme0n1 rw");
  EXPECT_THAT(numa_nodes_of(*find().device), ElementsAre(kUnknownNode));
}

TEST_F(DriveTree, ADriveBelowABridgeThatKnowsHasTheBridgesNode) {
  tree_.put("/sys/devices/pci0000:00/numa_node", "3\n");
  tree_.put("/sys/devices/pci0000:00/0000:01:00.0/numa_node", "-1\n");
  tree_.add_device("8:0", "pci0000:00/0000:01:00.0/ata1/host0/target0:0:0/0:0:0:0/block/sda");
  tree_.mount("8:0 / /data rw - xfs /dev/sda rw");
  EXPECT_THAT(numa_nodes_of(*find().device), ElementsAre(3));
}

TEST_F(DriveTree, AMappingOverRaidHasTheNodesOfEveryDrive) {
  add_nvme(0, 0);
  add_nvme(1, 1);
  add_partition(1);
  add_over("9:0", "md0", {"nvme0n1", "nvme1n1p1"});
  add_over("253:0", "dm-0", {"md0"});
  tree_.mount("253:0 / /data rw - ext4 /dev/mapper/group-data rw");
  const DrivePlace place = find();
  EXPECT_THAT(names(*place.device), ElementsAre("nvme0n1", "nvme1n1"));
  EXPECT_THAT(numa_nodes_of(*place.device), ElementsAre(0, 1));
}

TEST_F(DriveTree, ALoopDeviceStandsOnTheDriveOfItsFile) {
  add_nvme(0, 2);
  tree_.mount("259:0 / / rw - ext4 /dev/nvme0n1 rw");
  tree_.put("/images/disk", "");
  tree_.add_device("7:0", "virtual/block/loop0");
  tree_.put("/sys/devices/virtual/block/loop0/loop/backing_file", "/images/disk\n");
  tree_.mount("7:0 / /data rw - ext4 /dev/loop0 rw");
  const DrivePlace place = find();
  EXPECT_EQ(place.device->name, "loop0");
  EXPECT_THAT(names(*place.device), ElementsAre("nvme0n1"));
  EXPECT_THAT(numa_nodes_of(*place.device), ElementsAre(2));
}

TEST_F(DriveTree, ALoopDeviceInMemoryStandsOnNothing) {
  tree_.mount("0:30 / /images rw - tmpfs tmpfs rw");
  tree_.put("/images/disk", "");
  tree_.add_device("7:0", "virtual/block/loop0");
  tree_.put("/sys/devices/virtual/block/loop0/loop/backing_file", "/images/disk\n");
  tree_.mount("7:0 / /data rw - ext4 /dev/loop0 rw");
  EXPECT_THAT(names(*find().device), ElementsAre("loop0"));
  EXPECT_THAT(numa_nodes_of(*find().device), ElementsAre(kUnknownNode));
}

TEST_F(DriveTree, ADriveBehindTwoControllersHasTheNodesOfBoth) {
  for (const int index : {0, 1}) {
    const std::string pci = "pci0000:0" + std::to_string(index) + "/0000:01:00.0";
    tree_.put("/sys/devices/" + pci + "/numa_node", std::to_string(index) + "\n");
    tree_.make_folder("/sys/devices/" + pci + "/nvme/" + nvme(index));
    tree_.link("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/" + nvme(index),
               "/sys/devices/" + pci + "/nvme/" + nvme(index));
  }
  tree_.add_device("259:0", "virtual/nvme-subsystem/nvme-subsys0/nvme0n1");
  tree_.mount("259:0 / /data rw - ext4 /dev/nvme0n1 rw");
  EXPECT_THAT(numa_nodes_of(*find().device), ElementsAre(0, 1));
}

TEST_F(DriveTree, AFileSystemThatNumbersItselfIsFoundByItsSource) {
  add_nvme(0, 1);
  add_over("253:0", "dm-0", {"nvme0n1"});
  tree_.put("/dev/dm-0", "");
  tree_.link("/dev/mapper/data", "/dev/dm-0");
  tree_.mount("0:41 /subvolume /data rw - btrfs /dev/mapper/data rw,compress=zstd");
  const DrivePlace place = find();
  ASSERT_TRUE(place.device);
  EXPECT_EQ(place.device->name, "dm-0");
  EXPECT_THAT(numa_nodes_of(*place.device), ElementsAre(1));
}

TEST_F(DriveTree, LinksInACircleEnd) {
  add_over("253:0", "dm-0", {});
  tree_.link("/sys/devices/virtual/block/dm-0/slaves/dm-0", "/sys/devices/virtual/block/dm-0");
  tree_.mount("253:0 / /data rw - ext4 /dev/dm-0 rw");
  EXPECT_THAT(numa_nodes_of(*find().device), ElementsAre(kUnknownNode));
}

TEST_F(DriveTree, TheDeepestMountAndOfTwoAtOnePointTheLastIsMeant) {
  tree_.make_folder("/data/with space/deeper");
  tree_.mount("1:1 / / rw - ext4 /dev/a rw");
  tree_.mount("1:2 / /data/with\\040space rw,sync - xfs /dev/b rw");
  tree_.mount("1:3 / /data/with\\040space rw - ext4 /dev/c rw,data=journal");
  tree_.mount("1:4 / /data/with\\040space/deep rw - ext4 /dev/d rw");
  const auto mount = find_drive("/data/with space/deeper", tree_.root()).mount;
  ASSERT_TRUE(mount);
  EXPECT_EQ(mount->device, "1:3");
  EXPECT_EQ(mount->super_options, "rw,data=journal");
  EXPECT_EQ(find().mount->device, "1:1");
}

TEST_F(DriveTree, ADirectoryThatIsALinkIsWhereItLeads) {
  add_nvme(0, 0);
  tree_.mount("259:0 / /data rw - ext4 /dev/nvme0n1 rw");
  tree_.mount("0:30 / / rw - tmpfs tmpfs rw");
  tree_.link("/home/me/store", "/data");
  EXPECT_EQ(find_drive("/home/me/store", tree_.root()).mount->type, "ext4");
}

TEST(DriveOfThisMachine, HasAMount) {
  const sim::TemporaryDirectory directory;
  EXPECT_TRUE(find_drive(directory.path()).mount);
  EXPECT_FALSE(find_drive(directory.path() + "/missing").mount);
}

}  // namespace
}  // namespace sluice::memory
