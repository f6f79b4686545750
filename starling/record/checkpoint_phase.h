#pragma once

#include <atomic>

namespace starling::record {

/// The points at which tests kill the writer of a checkpoint.
enum class CheckpointPhase {
  opened,
  half_written,
  written,
  synced,
  renamed,
  before_manifest,
  manifest_written,
  published,
  removing,
  removed,
  count
};

using CheckpointHook = void (*)(CheckpointPhase);
inline std::atomic<CheckpointHook> checkpoint_hook{nullptr};

inline void checkpoint_reached(CheckpointPhase phase) {
  if (const CheckpointHook hook = checkpoint_hook.load(std::memory_order_relaxed)) hook(phase);
}

}  // namespace starling::record
