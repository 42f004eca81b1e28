#pragma once

/// Marks what the shared library exports; everything else is hidden.
#define SLUICE_API [[gnu::visibility("default")]]
