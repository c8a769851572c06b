"""``python -m tilewright``."""

from tilewright.cli.main import main

raise SystemExit(main())
