#pragma once

#include "peers/work.hpp"
#include "sluice/status.hpp"

namespace sluice::peers {

/// Moves blocks by io_submit(2) and io_getevents(2) and does nothing else.
/// Errors: kUnavailable where the kernel has no asynchronous I/O of this kind; a request that failed, or moved fewer
/// bytes than asked, kIoError.
Result<Moved> run_bare_aio(const Work& work);

}  // namespace sluice::peers
