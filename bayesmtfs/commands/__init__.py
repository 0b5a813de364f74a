"""The commands of ``bayesmtfs``, one file each; `bayesmtfs.cli` puts them together."""
