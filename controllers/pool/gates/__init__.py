"""What may delay the stop of a VM: the gates in the table `gates.table.GATES`, and what they ask."""
