#include "tools/nvme/tune_plot.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>

#include "tools/nvme/tune_table.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

// Units of the drawing: pixels.
constexpr double kWidth = 900;
constexpr double kPanelHeight = 460;
constexpr double kTitleHeight = 44;
constexpr double kLeft = 70;     // of the axes
constexpr double kRight = 740;   // beyond it the legend
constexpr double kTop = 40;      // in a panel
constexpr double kBottom = 400;  // in a panel
constexpr int kSteps = 5;        // of the upright axis

constexpr std::array kColours = {"#1b6ca8", "#d1495b", "#2e8b57", "#e6a117",
                                 "#7b4fa3", "#00808a", "#8c564b", "#555555"};

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? '?' : c;
    }
  }
  return safe;
}

// The least of 1, 2, 5 times a power of ten that kSteps steps of reach `most`.
double step_for(double most) {
  const double least = std::max(most, 1e-3) / kSteps;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

/// One drive's axes.
class Panel {
 public:
  Panel(const DriveTuning& drive, double top) : drive_(drive), top_(top) {
    double most = 0;
    first_ = last_ = std::log2(static_cast<double>(drive.points.front().block_bytes));
    for (const TunePoint& point : drive.points) {
      const double block = std::log2(static_cast<double>(point.block_bytes));
      first_ = std::min(first_, block);
      last_ = std::max(last_, block);
      most = std::max(most, point.gib_per_s);
      blocks_.insert(point.block_bytes);
      const std::size_t colour = colours_.size() % kColours.size();
      colours_.try_emplace(point.settings.depth, kColours[colour]);
    }
    step_ = step_for(most);
  }

  std::string draw() const { return axes() + lines() + cut_blocks() + legend(); }

 private:
  double x(std::uint64_t block_bytes) const {
    const double whole = std::max(last_ - first_, 1.0);
    return kLeft + 20 +
           (kRight - kLeft - 40) * (std::log2(static_cast<double>(block_bytes)) - first_) / whole;
  }
  double y(double gib_per_s) const {
    return top_ + kBottom - (kBottom - kTop) * gib_per_s / (step_ * kSteps);
  }

  std::string axes() const {
    std::string text = fmt::format(R"(<text x="{}" y="{}" class="panel">{}</text>)"
                                   "\n",
                                   kLeft, top_ + 24, escaped(drive_.directory));
    for (int i = 0; i <= kSteps; ++i) {
      const double value = step_ * i;
      text += fmt::format(
          R"(<line x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}" class="grid"/><text x="{}" y="{:.1f}" class="tick" )"
          R"(text-anchor="end">{:g}</text>)"
          "\n",
          kLeft, y(value), kRight, y(value), kLeft - 8, y(value) + 4, value);
    }
    for (const std::uint64_t block : blocks_) {
      text += fmt::format(
          R"(<line x1="{:.1f}" y1="{}" x2="{:.1f}" y2="{}" class="grid"/><text x="{:.1f}" y="{}" class="tick" )"
          R"(text-anchor="middle">{}</text>)"
          "\n",
          x(block), top_ + kTop, x(block), top_ + kBottom, x(block), top_ + kBottom + 18, size_text(block));
    }
    return text +
           fmt::format(
               R"(<text x="{}" y="{}" class="axis" text-anchor="middle">block</text>)"
               R"svg(<text x="18" y="{}" class="axis" text-anchor="middle" transform="rotate(-90 18 {})">GiB/s</text>)svg"
               "\n",
               (kLeft + kRight) / 2, top_ + kBottom + 40, top_ + (kTop + kBottom) / 2,
               top_ + (kTop + kBottom) / 2);
  }

  std::string titled(const TunePoint& point) const {
    return fmt::format("<title>{} x {}: {:.3f} GiB/s</title>", block_text(point), point.settings.depth,
                       point.gib_per_s);
  }

  std::string lines() const {
    std::string text;
    for (const auto& [depth, colour] : colours_) {
      std::string line;
      std::string marks;
      std::vector<const TunePoint*> whole;
      for (const TunePoint& point : drive_.points) {
        if (point.settings.depth == depth && point.settings.piece_bytes == point.block_bytes)
          whole.push_back(&point);
      }
      std::sort(whole.begin(), whole.end(),
                [](const TunePoint* a, const TunePoint* b) { return a->block_bytes < b->block_bytes; });
      for (const TunePoint* point : whole) {
        line += fmt::format("{:.1f},{:.1f} ", x(point->block_bytes), y(point->gib_per_s));
        marks += fmt::format(R"(<circle class="point" cx="{:.1f}" cy="{:.1f}" r="4" fill="{}">{}</circle>)"
                             "\n",
                             x(point->block_bytes), y(point->gib_per_s), colour, titled(*point));
      }
      if (!line.empty()) line.pop_back();
      text += fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>)"
                          "\n",
                          line, colour) +
              marks;
    }
    return text;
  }

  std::string cut_blocks() const {
    std::string text;
    for (const TunePoint& point : drive_.points) {
      if (point.settings.piece_bytes == point.block_bytes) continue;
      text += fmt::format(
          R"(<rect class="point" x="{:.1f}" y="{:.1f}" width="7" height="7" fill="white" stroke="{}">{}</rect>)"
          "\n",
          x(point.block_bytes) - 3.5, y(point.gib_per_s) - 3.5, colours_.at(point.settings.depth),
          titled(point));
    }
    return text;
  }

  std::string legend() const {
    std::string text;
    double line = top_ + kTop + 10;
    for (const auto& [depth, colour] : colours_) {
      text += fmt::format(
          R"(<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="{}" stroke-width="3"/><text x="{}" y="{}" )"
          R"(class="tick">depth {}</text>)"
          "\n",
          kRight + 20, line, kRight + 44, line, colour, kRight + 52, line + 4, depth);
      line += 20;
    }
    text += fmt::format(
        R"(<rect x="{}" y="{}" width="7" height="7" fill="white" stroke="black"/><text x="{}" y="{}" )"
        R"(class="tick">cut into pieces</text>)"
        "\n",
        kRight + 28, line - 4, kRight + 52, line + 4);
    const TunePoint& chosen = drive_.chosen;
    if (chosen.block_bytes > 0) {
      text +=
          fmt::format(R"(<text x="{}" y="{}" class="tick">chosen: {} x {}</text>)"
                      "\n",
                      kRight + 20, line + 34, size_text(chosen.settings.piece_bytes), chosen.settings.depth);
    }
    return text;
  }

  const DriveTuning& drive_;
  const double top_;
  double first_ = 0;  // logarithms of the least and the greatest block
  double last_ = 0;
  double step_ = 1;
  std::set<std::uint64_t> blocks_;
  std::map<std::uint32_t, std::string> colours_;  // by depth
};

}  // namespace

std::string tune_svg(const std::vector<DriveTuning>& drives, const std::string& title) {
  const double height = kTitleHeight + kPanelHeight * static_cast<double>(drives.size());
  std::string text = fmt::format(
      R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" font-family="sans-serif">
<style>.grid{{stroke:#ddd}} .tick{{font-size:12px;fill:#333}} .axis{{font-size:14px;fill:#111}}
.panel{{font-size:14px;font-weight:bold;fill:#111}}</style>
<rect width="{0}" height="{1}" fill="white"/>
<text x="{2}" y="28" font-size="18">{3}</text>
)",
      kWidth, height, kLeft, escaped(title));
  double top = kTitleHeight;
  for (const DriveTuning& drive : drives) {
    text += Panel(drive, top).draw();
    top += kPanelHeight;
  }
  return text + "</svg>\n";
}

Status check_plot(const std::string& path) {
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  std::error_code error;
  const bool writable = ::access(folder.c_str(), W_OK) == 0;
  if (!path.empty() && fs::is_directory(folder, error) && writable && !fs::is_directory(path, error))
    return {};
  return refuse("--plot", path, "a file in a directory that can be written to");
}

Status write_plot(const std::string& path, const std::string& svg) {
  const std::string temporary = fmt::format("{}.{}.part", path, getpid());
  std::ofstream file(temporary, std::ios::binary);
  file << svg;
  file.close();
  std::error_code error;
  if (file) fs::rename(temporary, path, error);
  if (file && !error) return {};
  const int native = error ? error.value() : errno;
  fs::remove(temporary, error);
  return status_from_errno(native, "writing " + path);
}

}  // namespace sluice::tools
