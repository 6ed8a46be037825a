package report

import "io"

// WriteHTML writes one page.
func WriteHTML(w io.Writer, runs []*Run) error { return WriteTable(w, runs) }
