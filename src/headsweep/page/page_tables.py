"""The tables that the page declares, in the order in which each section shows them."""

from headsweep.page import frontier_tables, paper_tables, selector_tables, sweep_tables

PAGE_TABLES = [
    *sweep_tables.TABLES,
    *selector_tables.TABLES,
    *frontier_tables.TABLES,
    *paper_tables.TABLES,
]
"""All of them. `headsweep.page.blocks.fill` makes them."""
