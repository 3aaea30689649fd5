"""A recorded history on the wire: as registers (`lists`), as fragments (`translate`), and on its way (`send`)."""
