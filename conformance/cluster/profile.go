package cluster

// Profile is how a cluster is set up.
type Profile struct {
	Version  string   // of Apache Kafka
	Features []string // finalized when the storage is formatted, as name=level
	Config   []string // of server.properties, as key=value
	// Join, if not empty, names a cluster that is up: what is started is one
	// more broker of it, without a controller, and of the same Version.
	Join string
}

// noTimeout opts a cluster in with stable APIs only: an InitProducerId may ask
// for this very timeout. 4.4.0 never ages such a transaction out, 3.9.1 after
// these 24.8 days.
const noTimeout = "transaction.max.timeout.ms=2147483647"

// The profiles. They differ in what a participant can be: how it opted in, and
// which transaction.version it has finalized, which decides the EndTxn version
// that ends its transactions.
var (
	// V44 is opted in by the timeout; transaction.version 2.
	V44 = Profile{Version: "4.4.0", Config: []string{noTimeout}}
	// V44TwoPC is opted in by KIP-939's own flag, and needs unstable APIs for
	// InitProducerId v6; its maximum timeout is Kafka's default of 15 minutes.
	V44TwoPC = Profile{Version: "4.4.0", Config: []string{
		"transaction.two.phase.commit.enable=true",
		"unstable.api.versions.enable=true",
	}}
	// V44TV1 advertises EndTxn v5 and must not be sent it: transaction.version 1.
	V44TV1 = Profile{Version: "4.4.0", Features: []string{"transaction.version=1"}, Config: []string{noTimeout}}
	// V44Plain has not opted in.
	V44Plain = Profile{Version: "4.4.0"}
	// V400 is the first release with transaction.version 2.
	V400 = Profile{Version: "4.0.0", Config: []string{noTimeout}}
	// V391 has EndTxn v4 only and no finalized transaction.version.
	V391 = Profile{Version: "3.9.1", Config: []string{noTimeout}}
)
