from __future__ import annotations

import os
import sys

# redis-py imports this where it is installed. The programs that the tests start measure nothing
# with it, and start in nine tenths of the time without.
if "TEST_SERVER_URL" in os.environ:
    sys.modules.setdefault("opentelemetry.sdk.metrics", None)  # type: ignore[arg-type]  # stands for one that is missing
