package conformance

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/magiconair/properties"
)

// Target is what the suite is told of the implementation under test.
type Target struct {
	// Name is for the report.
	Name string
	// Bootstrap is the address of any node of the coordinator.
	Bootstrap string
	// Security is that of the suite's own principal, which must have all rights
	// on the ids that begin with "conformance-".
	Security *Security
	// Principals are others: reader may describe the ids only, stranger
	// nothing, operator has ALTER on the cluster.
	Principals map[string]*Security
	// Secrets are the passwords that must not be seen anywhere.
	Secrets []string
	// Participants are the clusters that the suite writes to; the first is the
	// one that a run is about, the second its companion.
	Participants []ParticipantTarget
	// Home is where the topic of the log can be read and written, or empty.
	Home         string
	HomeSecurity *Security
	// Unreachable, Mismatch and Closed are ids of configured clusters: one that
	// cannot be reached, one whose address belongs to another cluster, and one
	// that has not opted in. Empty: there is none.
	Unreachable, Mismatch, Closed string
	// Plain is a node of the same implementation without the role, on a plain
	// listener, or empty.
	Plain string
	// Metrics is the URL of the metrics in Prometheus' text format, or empty.
	Metrics string
	// Nodes are those of the coordinator.
	Nodes []NodeTarget

	// How the target is configured, so that the suite knows what to wait for:
	// global.transaction.scan.interval.ms, .max.timeout.ms,
	// .participant.request.timeout.ms, and global.transactional.id.expiration.ms.
	ScanInterval, MaxTimeout, RequestTimeout, Expiration time.Duration
}

// ParticipantTarget is one cluster.
type ParticipantTarget struct {
	Name, Bootstrap string
	Security        *Security
	// Via is the address that the coordinator has for this cluster. The suite
	// listens there and passes on to Bootstrap. Empty: the coordinator has
	// Bootstrap, and the cases that need to listen in are not applicable.
	Via string
}

// Action is a command on a node; nil means that there is none.
type Action func(context.Context) error

// NodeTarget is one node of the coordinator and how it can be hurt.
type NodeTarget struct {
	Name string
	// Kill ends it as a power cut would, Start lets it come back with what it
	// had stored, and returns when it serves. Pause freezes it.
	Kill, Start, Pause, Resume Action
}

var errTarget = errors.New("conformance: target file")

// targetKeys are the keys of a target file besides participant.*, node.* and
// principal.*.
var targetKeys = []string{
	"name", "bootstrap.servers", "command.config", "participants", "nodes", "home.bootstrap.servers", "home.command.config", "metrics.url", "without.role.bootstrap.servers",
	"unreachable.cluster.id", "mismatch.cluster.id", "closed.cluster.id",
	"scan.interval.ms", "max.timeout.ms", "request.timeout.ms", "expiration.ms",
}

// ReadTarget reads a properties file; conformance/README.md describes it.
func ReadTarget(file string) (*Target, error) {
	p, err := properties.LoadFile(file, properties.UTF8)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTarget, err)
	}
	t := &Target{
		Name: p.GetString("name", file), Bootstrap: p.GetString("bootstrap.servers", ""),
		Home: p.GetString("home.bootstrap.servers", ""), Metrics: p.GetString("metrics.url", ""),
		Unreachable: p.GetString("unreachable.cluster.id", ""), Mismatch: p.GetString("mismatch.cluster.id", ""),
		Plain:  p.GetString("without.role.bootstrap.servers", ""),
		Closed: p.GetString("closed.cluster.id", ""), Principals: map[string]*Security{},
	}
	if err = t.readTimes(p); err == nil {
		err = t.readParts(p)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errTarget, file, err)
	}
	return t, nil
}

func (t *Target) readTimes(p *properties.Properties) error {
	for key, into := range map[string]struct {
		to  *time.Duration
		def int64
	}{
		"scan.interval.ms": {&t.ScanInterval, 10_000}, "max.timeout.ms": {&t.MaxTimeout, 900_000},
		"request.timeout.ms": {&t.RequestTimeout, 10_000}, "expiration.ms": {&t.Expiration, 604_800_000},
	} {
		ms := p.GetInt64(key, into.def)
		if ms <= 0 {
			return fmt.Errorf("%s=%d is no duration in milliseconds", key, ms)
		}
		*into.to = time.Duration(ms) * time.Millisecond
	}
	return nil
}

func (t *Target) readParts(p *properties.Properties) (err error) {
	security := func(key string) *Security {
		at := p.GetString(key, "")
		if at == "" || err != nil {
			return nil
		}
		var s *Security
		s, err = ReadSecurity(at)
		return s
	}
	t.Security, t.HomeSecurity = security("command.config"), security("home.command.config")
	for _, name := range list(p.GetString("participants", "")) {
		key := "participant." + name + "."
		t.Participants = append(t.Participants, ParticipantTarget{
			Name: name, Bootstrap: p.GetString(key+"bootstrap.servers", ""), Via: p.GetString(key+"via", ""),
			Security: security(key + "command.config"),
		})
	}
	for _, name := range list(p.GetString("nodes", "")) {
		key := "node." + name + "."
		t.Nodes = append(t.Nodes, NodeTarget{
			Name: name, Kill: command(p.GetString(key+"kill", "")), Start: command(p.GetString(key+"start", "")),
			Pause: command(p.GetString(key+"pause", "")), Resume: command(p.GetString(key+"resume", "")),
		})
	}
	for _, key := range p.Keys() {
		name, isPrincipal := strings.CutPrefix(key, "principal.")
		switch {
		case isPrincipal:
			t.Principals[name] = security(key)
		case slices.Contains(targetKeys, key), strings.HasPrefix(key, "participant."), strings.HasPrefix(key, "node."):
		default:
			return fmt.Errorf("unknown key %s; there are %s, participant.<name>.*, node.<name>.* and principal.<name>", key, strings.Join(targetKeys, ", "))
		}
	}
	return err
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return c == ',' || c == ' ' })
}

// command is a line for the shell.
func command(line string) Action {
	if line == "" {
		return nil
	}
	return func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
		if err != nil {
			return fmt.Errorf("conformance: %s: %w: %s", line, err, out)
		}
		return nil
	}
}
