package participant

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// Of a cluster that is away for a night every scan says so, and of one with a
// broker away every other request says the one and then the other.
func TestThatAClusterIsAwayIsSaidOnce(t *testing.T) {
	var out bytes.Buffer
	c := newCluster(Config{Alias: "us"}, clock, zerolog.New(&out))
	for range 1000 {
		c.note(errors.New("connection refused"))
	}
	for range 1000 {
		c.note(nil)
		c.note(errors.New("connection refused"))
	}
	c.note(nil)
	const away, back = "cannot be reached", "reached again"
	if got := out.String(); strings.Count(got, away) != 1 || strings.Count(got, back) != 1 || strings.Index(got, away) > strings.Index(got, back) {
		t.Errorf("the log is\n%s", got)
	}
	if st := c.status(); !st.Reachable || st.LastError != "" {
		t.Errorf("%+v, want reachable", st)
	}
}

// Two names of one cluster would be waited for in vain: ids expire after a look
// at as many clusters as are configured.
func TestOneClusterThatIsConfiguredTwiceIsNamed(t *testing.T) {
	a := fake(t, "A")
	c := drive(t, at("us", a.ListenAddrs()...), at("eu", a.ListenAddrs()...))
	if got := c.Aliases(); !slices.Equal(got, []string{"us", "eu"}) {
		t.Errorf("aliases %v", got)
	}
	eventually(t, func() bool {
		id, err := c.Learn(t.Context(), "us")
		_, twice := c.Learn(t.Context(), "eu")
		return id == "A" && err == nil && twice != nil && strings.Contains(twice.Error(), `"us" and "eu" are one cluster`)
	})
}
