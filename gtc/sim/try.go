package sim

import "strconv"

func Try(a []string) []Search {
	n := func(i int) int8 { x, _ := strconv.Atoi(a[i]); return int8(x) }
	b := budget{claims: n(1), breaks: n(2), giveUps: n(3), late: n(4), scans: n(5), ticks: n(6), outsiders: n(7), failures: 0}
	return []Search{{Name: "try", Limit: 20_000_000, Config: func() *world {
		return searched("", int(n(0)), []int16{n16(a[8]), n16(a[9])}, []set{{3, 3}}, b)
	}}}
}
func n16(s string) int16 { x, _ := strconv.Atoi(s); return int16(x) }
