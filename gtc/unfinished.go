package gtc

// Unfinished describes, in no order, the ids that are not at rest. It looks at
// every id, which takes a millisecond for ten thousand: a list of them kept
// beside the state would have to be told of every way to rest.
func (m *Machine) Unfinished(now Time) []Description {
	var ds []Description
	for _, e := range m.entries {
		if e.value != nil && !e.atRest() {
			ds = append(ds, describe(now, e))
		}
	}
	return ds
}

// atRest: nothing of the id is under way, pending, seen open, left over or torn.
func (e *entry) atRest() bool {
	return e.volatile.idle() && !busy(e.value) && !heuristic(e.value) && len(e.value.Leftovers) == 0
}
