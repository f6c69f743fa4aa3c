"""State of a process that tasks depend on: the version of tpuconvert, and the plugins."""

from __future__ import annotations

import os
import platform
import warnings
from dataclasses import dataclass

from tpuconvert.installed import version
from tpuconvert.plugins import ENVIRONMENT, PluginWarning, load_plugins, loaded_files, wanted_plugins
from tpuconvert.schema.errors import UsageError


@dataclass(frozen=True)
class Environment:
    """Facts that a worker needs to have in common with the client.

    Args:
        version: version of tpuconvert.
        plugin_files: plugin files that the client has loaded.
        installed_plugins: names of the installed plugins that it loads; None for all.
    """

    version: str
    plugin_files: tuple[str, ...]
    installed_plugins: tuple[str, ...] | None

    @staticmethod
    def of_this_process() -> Environment:
        """Return the environment of this process."""
        return Environment(version(), tuple(loaded_files()), wanted_plugins())

    def check_and_load(self) -> None:
        """Compare the version of a worker, which runs this, with the version of the client, and load the plugins.

        Raises:
            UsageError: the versions differ, or a plugin is missing.
        """
        if version() != self.version:
            raise UsageError(
                f"the worker on {platform.node()} has tpuconvert {version()}, the client {self.version}",
                hint=f"install the same version on both: pip install tpuconvert=={self.version}",
            )
        if self.installed_plugins is not None:
            os.environ[ENVIRONMENT] = ",".join(self.installed_plugins) or "none"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PluginWarning)  # the client has printed them
            load_plugins(self.plugin_files)
