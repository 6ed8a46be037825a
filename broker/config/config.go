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
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
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

// Secret is a value that no log, print or error may show.
type Secret string

// Hidden stands for a secret wherever one would be shown, as in Kafka.
const Hidden = "[hidden]"

// String hides the value; use string(s) to have it.
func (s Secret) String() string { return Hidden }

// GoString hides the value from %#v too.
func (s Secret) GoString() string { return Hidden }

// MarshalText hides the value from JSON and from the logger.
func (s Secret) MarshalText() ([]byte, error) { return []byte(Hidden), nil }

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
	Security         Security
}

// Security is a Kafka client's way in.
type Security struct {
	TLS              bool
	TrustStore       TrustStore // none: the system's certificates
	KeyStore         KeyStore
	VerifyHostname   bool
	SASLMechanism    string // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; empty: none
	Username         string
	Password         Secret
	SecurityProtocol string // as configured, for messages
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

	settings settings
}

// String keeps the raw settings, secrets among them, out of a careless %v.
func (c Config) String() string {
	return fmt.Sprintf("configuration of node %d (%s)", c.NodeID, c.Roles)
}

// GoString does the same for %#v.
func (c Config) GoString() string { return c.String() }

// Error is one thing that is wrong with the configuration.
type Error struct {
	Source  string // the file, or "--override"
	Line    int    // 0 when the source has no lines
	Key     string // empty when the line could not be read at all
	Problem string // what is wrong and what to do
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Source)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	return b.String() + ": " + e.Problem
}

// Load reads the properties file at path (none when path is empty), lays the
// overrides (key=value) over it and checks the whole. The error joins every
// *Error found, so that one start shows all that there is to mend.
func Load(path string, overrides []string) (*Config, error) {
	if path == "" {
		return Parse("", strings.NewReader(""), overrides)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	return Parse(path, f, overrides)
}

// Parse is Load from a reader; source names it in errors.
func Parse(source string, r io.Reader, overrides []string) (*Config, error) {
	assigned, errs := parseProperties(source, r)
	fromFlags, flagErrs := parseOverrides(overrides)
	errs = append(errs, flagErrs...)

	s, settleErrs := settle(assigned, fromFlags)
	errs = append(errs, settleErrs...)
	if len(errs) > 0 {
		return nil, join(errs)
	}
	b := builder{settings: s}
	c := b.build()
	if len(b.errs) > 0 {
		return nil, join(b.errs)
	}
	return c, nil
}

func join(errs []*Error) error {
	joined := make([]error, len(errs))
	for i, e := range errs {
		joined[i] = e
	}
	return errors.Join(joined...)
}
