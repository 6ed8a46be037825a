package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
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
	// MaxIDs is global.transactional.ids.max.per.partition.
	MaxIDs int
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

func (t *Target) secure() bool {
	return t.Security.secure() || slices.ContainsFunc(t.Participants, func(p ParticipantTarget) bool { return p.Security.secure() })
}

var errTarget = errors.New("conformance: target file")

// targetKeys are the keys of a target file, without those of participants and
// nodes.
var targetKeys = []properties.Key{
	{Name: "name", Type: properties.String},
	{Name: "bootstrap.servers", Type: properties.List},
	{Name: "command.config", Type: properties.String},
	{Name: "participants", Type: properties.List},
	{Name: "nodes", Type: properties.List},
	{Name: "principal.reader", Type: properties.String},
	{Name: "principal.stranger", Type: properties.String},
	{Name: "principal.operator", Type: properties.String},
	{Name: "home.bootstrap.servers", Type: properties.List},
	{Name: "home.command.config", Type: properties.String},
	{Name: "metrics.url", Type: properties.String},
	{Name: "without.role.bootstrap.servers", Type: properties.List},
	{Name: "unreachable.cluster.id", Type: properties.String},
	{Name: "mismatch.cluster.id", Type: properties.String},
	{Name: "closed.cluster.id", Type: properties.String},
	{Name: "scan.interval.ms", Type: properties.Long, Default: "10000", Min: 1, Max: maxMillis},
	{Name: "max.timeout.ms", Type: properties.Long, Default: "900000", Min: 1, Max: maxMillis},
	{Name: "request.timeout.ms", Type: properties.Long, Default: "10000", Min: 1, Max: maxMillis},
	{Name: "ids.max.per.partition", Type: properties.Int, Default: "20000", Min: 1, Max: math.MaxInt32},
	{Name: "expiration.ms", Type: properties.Long, Default: "604800000", Min: 1, Max: maxMillis},
}

// maxMillis is the longest time.Duration.
const maxMillis = int64(math.MaxInt64 / time.Millisecond)

var (
	participantKeys = []string{"bootstrap.servers", "via", "command.config"}
	nodeKeys        = []string{"kill", "start", "pause", "resume"}
)

// targetSchema is that of a target with these participants and nodes.
func targetSchema(participants, nodes []string) properties.Schema {
	keys := slices.Clone(targetKeys)
	add := func(prefix string, names, suffixes []string) {
		for _, name := range names {
			for _, suffix := range suffixes {
				keys = append(keys, properties.Key{Name: prefix + name + "." + suffix, Type: properties.String})
			}
		}
	}
	add("participant.", participants, participantKeys)
	add("node.", nodes, nodeKeys)
	s := properties.SchemaOf(keys)
	s.Listed = "conformance/README.md lists those there are; participants and nodes are named by the keys of these names"
	return s
}

// ReadTarget reads a properties file; conformance/README.md describes it.
func ReadTarget(file string) (*Target, error) {
	p, err := properties.Load(file, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTarget, err)
	}
	p.Check(targetSchema(p.List("participants"), p.List("nodes")))
	if err = p.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errTarget, err)
	}
	t := &Target{
		Name: cmp.Or(p.Value("name"), file), Bootstrap: p.Value("bootstrap.servers"),
		Home: p.Value("home.bootstrap.servers"), Metrics: p.Value("metrics.url"),
		Unreachable: p.Value("unreachable.cluster.id"), Mismatch: p.Value("mismatch.cluster.id"),
		Plain: p.Value("without.role.bootstrap.servers"), Closed: p.Value("closed.cluster.id"),
		ScanInterval: p.Millis("scan.interval.ms"), MaxTimeout: p.Millis("max.timeout.ms"),
		RequestTimeout: p.Millis("request.timeout.ms"), Expiration: p.Millis("expiration.ms"),
		MaxIDs:     int(p.Int32("ids.max.per.partition")),
		Principals: map[string]*Security{},
	}
	t.readParts(p)
	if err = p.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errTarget, err)
	}
	return t, nil
}

func (t *Target) readParts(p *properties.Settings) {
	security := func(key string) *Security {
		if p.Value(key) == "" {
			return nil
		}
		s, err := ReadSecurity(p.Value(key))
		if err != nil {
			p.Refuse(key, "%w", err)
		}
		return s
	}
	t.Security, t.HomeSecurity = security("command.config"), security("home.command.config")
	for _, name := range []string{"reader", "stranger", "operator"} {
		if s := security("principal." + name); s != nil {
			t.Principals[name] = s
		}
	}
	for _, name := range p.List("participants") {
		key := "participant." + name + "."
		if len(p.Servers(key+"bootstrap.servers")) > 1 {
			p.Refuse(key+"bootstrap.servers", "one address only")
		}
		t.Participants = append(t.Participants, ParticipantTarget{
			Name: name, Bootstrap: p.Value(key + "bootstrap.servers"), Via: p.Value(key + "via"),
			Security: security(key + "command.config"),
		})
	}
	for _, name := range p.List("nodes") {
		key := "node." + name + "."
		t.Nodes = append(t.Nodes, NodeTarget{
			Name: name, Kill: command(p.Value(key + "kill")), Start: command(p.Value(key + "start")),
			Pause: command(p.Value(key + "pause")), Resume: command(p.Value(key + "resume")),
		})
	}
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
