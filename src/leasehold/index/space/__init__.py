"""Space: which bytes of which segment belong to which owner. All of P3 is kept in this package."""
