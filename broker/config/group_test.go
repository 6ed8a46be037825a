package config

import (
	"strings"
	"testing"
	"time"
)

func TestNodesOfAGroupHaveASessionTimeout(t *testing.T) {
	alone := []string{"process.roles=gtc", "gtc.clusters=us", "gtc.cluster.us.bootstrap.servers=us:1", "gtc.home.bootstrap.servers=home:1"}
	const key = "global.transaction.coordinator.session.timeout.ms"
	for _, c := range []struct {
		lines []string
		want  time.Duration
		err   string
	}{
		{lines: alone, want: 10 * time.Second},
		{lines: append(alone, key+"=6000"), want: 6 * time.Second},
		{lines: append(alone, key+"=99"), err: "out of range"},
		{lines: []string{"process.roles=broker,gtc"}},
		{lines: []string{"process.roles=broker,gtc", key + "=6000"}, err: "gtc without broker"},
	} {
		cfg, err := Load("", c.lines)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), key) {
				t.Errorf("%v: %v, want %q about %s", c.lines, err, c.err, key)
			}
		case err != nil:
			t.Errorf("%v: %v", c.lines, err)
		case cfg.GlobalTransactions.SessionTimeout != c.want:
			t.Errorf("%v: %v, want %v", c.lines, cfg.GlobalTransactions.SessionTimeout, c.want)
		}
	}
}

func TestMetricsAreOffUnlessAListenerIsNamed(t *testing.T) {
	both := "process.roles=broker,gtc"
	for value, want := range map[string]*HostPort{
		"": nil, "127.0.0.1:0": {Host: "127.0.0.1"}, ":9404": {Port: 9404}, "[::1]:9404": {Host: "::1", Port: 9404},
	} {
		cfg, err := Load("", []string{both, "metrics.listener=" + value})
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		if got := cfg.Metrics; (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, want %+v", value, got, want)
		}
	}
	for _, lines := range [][]string{{both, "metrics.listener=9404"}, {both, "metrics.listener=a:b"}, {both, "metrics.listener=a:65536"}, {"metrics.listener=:1"}} {
		if _, err := Load("", lines); err == nil || !strings.Contains(err.Error(), "metrics.listener") {
			t.Errorf("%v: %v, want an error about metrics.listener", lines, err)
		}
	}
}
