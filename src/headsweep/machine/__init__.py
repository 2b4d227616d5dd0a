"""The machine: its processors, memory and cores, and limits for what strangers wrote."""
