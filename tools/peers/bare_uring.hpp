#pragma once

#include "peers/work.hpp"
#include "sluice/status.hpp"

namespace sluice::peers {

/// Moves blocks by a ring with registered buffers and a registered file, set up with the best flags that the kernel
/// takes, and does nothing else. Where buffers or files cannot be registered it goes on without and says so.
/// Errors: kUnavailable where there is no ring; a request that failed, or moved fewer bytes than asked, kIoError.
Result<Moved> run_bare_uring(const Work& work);

}  // namespace sluice::peers
