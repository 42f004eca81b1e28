#pragma once

/// Everything an embedder needs.
#include "sluice/communicator.hpp"
#include "sluice/device.hpp"
#include "sluice/engine.hpp"
#include "sluice/loss_scaler.hpp"
#include "sluice/optimizer.hpp"
#include "sluice/options.hpp"
#include "sluice/stats.hpp"
#include "sluice/status.hpp"
#include "sluice/tensor.hpp"
#include "sluice/types.hpp"
