// Package config reads the node's configuration: a Kafka properties file and
// key=value overrides on top of it.
//
// One table (Keys) says of every key its type, default, range, role and
// documentation; validation, --help-config and the effective configuration are
// all drawn from it. What the table does not know is refused: a mistyped
// global.transaction.max.timeout.ms that falls back to its default in silence
// would be found only when a reader is stuck behind an open transaction.
package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

// Roles are the parts that a node plays (process.roles).
type Roles struct {
	Broker bool // the embedded Kafka broker
	GTC    bool // the Global Transaction Coordinator
}

// String gives the value of process.roles.
func (r Roles) String() string {
	switch {
	case r.Broker && r.GTC:
		return "broker,gtc"
	case r.GTC:
		return "gtc"
	default:
		return "broker"
	}
}

// HostPort is one end of a listener.
type HostPort struct {
	Host string // empty: all interfaces
	Port int32  // 0: the system chooses (listeners), or the bound port (advertised.listeners)
}

// Cluster says how to reach one Kafka cluster.
type Cluster struct {
	Alias            string // empty for the home cluster
	BootstrapServers []string
	ClusterID        string // expected; empty: whatever the cluster says
	Security         properties.Security
}

// GlobalTransactions are the coordinator's own settings.
type GlobalTransactions struct {
	MaxTimeout                time.Duration
	TransactionalIDExpiration time.Duration
	ScanInterval              time.Duration
	ParticipantRequestTimeout time.Duration
	RetryBackoffMax           time.Duration
	MaxParticipants           int32
	MaxIDsPerPartition        int32
	LogPartitions             int32
	LogReplicationFactor      int16
	LogMinISR                 int16
	// SessionTimeout is how long a node may be silent before others take over;
	// 0 on a node that has the log on its embedded broker and shares it with
	// nobody.
	SessionTimeout time.Duration
}

// Config is a complete and consistent configuration.
type Config struct {
	Roles      Roles
	NodeID     int32
	ClusterID  string      // empty: made at the first start and kept in the data directory
	Listeners  []Listener  // at least one, in the order of listeners
	Authorizer *Authorizer // nil: everybody may do everything
	ScramUsers []ScramUser // made at the start unless they are there
	LogDir     string      // empty: everything is kept in memory and lost at the end
	LogLevel   string
	Metrics    *HostPort // nil: the coordinator's metrics are not offered

	NumPartitions    int32
	AutoCreateTopics bool
	SyncWrites       bool // fsync before a produce is acknowledged
	SegmentBytes     int32
	GroupMaxSize     int32 // members

	SocketRequestMaxBytes int32
	MaxConnections        int32
	MaxConnectionsPerIP   int32
	MaxInFlight           int32 // answers outstanding on one connection
	QueuedMaxRequestBytes int64
	ConnectionsMaxIdle    time.Duration

	TransactionMaxTimeoutMillis int32
	TwoPhaseCommit              bool
	UnstableAPIVersions         bool

	Clusters           []Cluster // the participants, in the order of gtc.clusters
	Home               *Cluster  // nil when the log is on the embedded broker
	GlobalTransactions GlobalTransactions

	settings *properties.Settings
}

// String keeps the raw settings, secrets among them, out of a careless %v.
func (c Config) String() string {
	return fmt.Sprintf("configuration of node %d (%s)", c.NodeID, c.Roles)
}

// GoString does the same for %#v.
func (c Config) GoString() string { return c.String() }

// Load reads the properties file at path (none when path is empty), lays the
// overrides (key=value) over it and checks the whole. The error joins every
// *properties.Error found, so that one start shows all that there is to mend.
func Load(path string, overrides []string) (*Config, error) {
	s, err := properties.Load(path, overrides)
	if err != nil {
		return nil, err
	}
	return typed(s)
}

// Parse is Load from a reader; source names it in errors.
func Parse(source string, r io.Reader, overrides []string) (*Config, error) {
	return typed(properties.Parse(source, r, overrides))
}

func typed(s *properties.Settings) (*Config, error) {
	roles := []string{defaultRoles}
	if s.IsSet("process.roles") { // which decides on the defaults of others
		roles = s.List("process.roles")
	}
	b := builder{Settings: s, roles: Roles{Broker: slices.Contains(roles, "broker"), GTC: slices.Contains(roles, "gtc")}}
	s.Check(schema(b.roles))
	if err := s.Err(); err != nil {
		return nil, err
	}
	c := b.build()
	if err := s.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Print writes the effective configuration, one key=value a line and where
// each comes from. Secrets are hidden.
func (c *Config) Print(w io.Writer) error { return c.settings.Print(w, c.effectiveNames()) }

// effectiveNames are the keys that mean something on this node.
func (c *Config) effectiveNames() []string {
	var names []string
	for _, k := range keys {
		if !k.appliesTo(c.Roles) {
			continue
		}
		switch {
		case strings.Contains(k.Name, Alias):
			for _, cl := range c.Clusters {
				names = append(names, strings.Replace(k.Name, Alias, cl.Alias, 1))
			}
		case strings.Contains(k.Name, ListenerName):
			for _, l := range c.Listeners {
				// One that is not set is shown without the prefix.
				if name := strings.Replace(k.Name, ListenerName, strings.ToLower(l.Name), 1); c.settings.IsSet(name) {
					names = append(names, name)
				}
			}
		default:
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}
