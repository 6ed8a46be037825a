package broker

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/magiconair/properties"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// kafkaMaxSessionTimeout is Kafka's default of group.max.session.timeout.ms;
// kfake's is five minutes.
const kafkaMaxSessionTimeout = 30 * time.Minute

// Embedded is the Kafka broker inside the process. It is always node 0: kfake
// numbers its brokers itself.
type Embedded struct {
	cluster   *kfake.Cluster
	producers *producers
	deletions *deletions
	ln        *memoryListener
	storage   *storage
	syncs     syncs
	opening   chan struct{} // a place for each batch that is being opened
	offline   offline
	clusterID string
	// superUser is the name of the node's own clients, which kfake lets do
	// everything; empty: it lets everybody, because there is no authorizer.
	superUser string
}

// OpenEmbedded starts the broker on the data directory of the configuration,
// which the caller has locked (see LockDir), or in memory when there is none.
// Clients are told the address of node. prepare, when not nil, mends the data
// directory before it is read.
func OpenEmbedded(cfg *config.Config, node Node, prepare func(dir string) error, log zerolog.Logger) (*Embedded, error) {
	clusterID, err := openDir(cfg, log)
	if err != nil {
		return nil, err
	}
	ln, store := newMemoryListener(node.Addr()), newStorage(log)
	if err = store.open(cfg); err != nil {
		return nil, err
	}
	if prepare != nil && cfg.LogDir != "" {
		if err = prepare(cfg.LogDir); err != nil {
			store.close()
			return nil, fmt.Errorf("opening the data directory %s: %w", cfg.LogDir, err)
		}
	}
	if cfg.LogDir != "" {
		if err = mendSettings(cfg, log); err != nil {
			store.close()
			return nil, err
		}
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID(clusterID),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return ln, nil }),
		kfake.DefaultNumPartitions(int(cfg.NumPartitions)),
		kfake.GroupMaxSessionTimeout(kafkaMaxSessionTimeout),
		kfake.BrokerConfigs(pinned(cfg)),
		kfake.WithLogger(store),
	}
	if cfg.LogDir != "" {
		opts = append(opts, kfake.DataDir(cfg.LogDir))
		if cfg.SyncWrites {
			opts = append(opts, kfake.SyncWrites())
		}
	}
	e := &Embedded{ln: ln, storage: store, deletions: newDeletions(cfg.LogDir), opening: newOpening(), syncs: syncs{waiting: map[chan struct{}]*member{}}, clusterID: clusterID}
	opts = append(opts, e.accessControl(cfg)...)
	if e.cluster, err = kfake.NewCluster(opts...); err != nil {
		store.close()
		return nil, fmt.Errorf("starting the embedded broker: %w", err)
	}
	if err = e.loadProducers(cfg.LogDir); err != nil {
		e.Close()
		return nil, fmt.Errorf("looking for transactional producers: %w", err)
	}
	return e, nil
}

// loadTimeout bounds the questions that are asked of kfake before it serves.
const loadTimeout = time.Minute

func (e *Embedded) loadProducers(dir string) error {
	p := &producers{
		embedded: e, owners: make(map[int64]owner), kept: make(map[string]durable.Kept), ended: make(map[string]bool),
		secret: []byte(rand.Text()),
	}
	e.producers, p.save = p, func([]durable.Kept) error { return nil }
	if dir != "" {
		kept, err := durable.LoadKept(dir)
		if err != nil {
			return err
		}
		for _, k := range kept {
			p.kept[k.TransactionalID] = k
		}
		p.save = func(all []durable.Kept) error { return durable.SaveKept(dir, all) }
	}
	e.cluster.Fault(append(p.fences(), mends()...)...)
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	return p.load(ctx)
}

// kfakeMaxTimeout is the limit that kfake gets. With two-phase commit it is
// none, and the front draws the configured limit for all other producers.
func kfakeMaxTimeout(cfg *config.Config) string {
	if cfg.TwoPhaseCommit {
		return strconv.Itoa(noTimeout)
	}
	return strconv.Itoa(int(cfg.TransactionMaxTimeoutMillis))
}

// ClusterID is the id that clients see.
func (e *Embedded) ClusterID() string { return e.clusterID }

// Close writes down what kfake keeps in memory and ends it. The front goes
// first. After a failure of the storage nothing is written any more, and kfake
// ends with the process: what it has in memory is not what it has promised, and
// the next start mends the directory as after a crash.
func (e *Embedded) Close() {
	if e.storage.err() == nil {
		e.cluster.Close()
	}
	e.storage.close()
}

// Dial connects to kfake itself, past the front: for the node's own clients
// that need none of what the front adds. It fits kgo.Dialer. As from a front, an
// answer comes when all that was written until then is on the disk, and none
// comes after the disk has failed.
func (e *Embedded) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := e.dialNode(ctx)
	if err != nil {
		return nil, err
	}
	return &settledConn{Conn: c, storage: e.storage, in: bufio.NewReaderSize(c, connBuffer)}, nil
}

// dialNode connects in the node's own name.
func (e *Embedded) dialNode(ctx context.Context) (net.Conn, error) {
	return e.dialAs(ctx, address("127.0.0.1:0"), e.superUser)
}

// settledConn lets no answer through before the disk has what it may promise.
type settledConn struct {
	net.Conn
	storage *storage
	in      *bufio.Reader
	frame   []byte // what is left of the answer that may be read
}

func (c *settledConn) Read(p []byte) (int, error) {
	if len(c.frame) == 0 {
		frame, err := readResponse(c.in)
		if err == nil {
			err = c.storage.settled()
		}
		if err != nil {
			return 0, err
		}
		c.frame = frame
	}
	n := copy(p, c.frame)
	c.frame = c.frame[n:]
	return n, nil
}

// hasTopic says that kfake has the topic now.
func (e *Embedded) hasTopic(name string) bool { return e.cluster.LeaderFor(name, 0) >= 0 }

func (e *Embedded) dial(ctx context.Context, from net.Addr) (net.Conn, error) {
	return e.ln.dial(ctx, from)
}

// apiVersions asks kfake what it serves.
func (e *Embedded) apiVersions(ctx context.Context) (apiTable, error) {
	answer, err := e.ask(ctx, kmsg.NewPtrApiVersionsRequest()) // of version 0
	if err != nil {
		return nil, err
	}
	resp := answer.(*kmsg.ApiVersionsResponse)
	t := make(apiTable, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		if kmsg.RequestForKey(k.ApiKey) != nil {
			t[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
		}
	}
	if len(t) == 0 {
		return nil, errors.New("it serves nothing")
	}
	return t, nil
}

// metaFile holds, as with Kafka, whose data a directory has.
const metaFile = "meta.properties"

// kfakeMetaFile is the file that kfake writes first.
const kfakeMetaFile = "meta.json"

// openDir makes the data directory this process' own, and tells whose data it has.
func openDir(cfg *config.Config, log zerolog.Logger) (clusterID string, err error) {
	if cfg.LogDir == "" {
		return clusterIDOf("", cfg.ClusterID)
	}
	if err = notOfOthers(cfg.LogDir); err != nil {
		return "", err
	}
	if clusterID, err = clusterIDOf(cfg.LogDir, cfg.ClusterID); err != nil {
		return "", err
	}
	mended, err := makePrivate(cfg.LogDir)
	if mended > 0 {
		log.Warn().Str("data", cfg.LogDir).Int("files", mended).Msg("files of the data directory were open to others, and are not any more; they may have been read: passwords of users are in it, salted")
	}
	return clusterID, err
}

// clusterIDOf gives the id of the data directory: the one that it has, the
// configured one, or a new one, which is then written down. kfake keeps the id
// that it finds and does not mind another one being asked for; a directory
// taken for another cluster's would give its participants a false name.
func clusterIDOf(dir, configured string) (string, error) {
	if dir == "" {
		return orRandom(configured), nil
	}
	path := filepath.Join(dir, metaFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = os.Stat(filepath.Join(dir, kfakeMetaFile)); err == nil {
			return "", fmt.Errorf("%s has data, but no %s: it was written by another program or damaged", dir, metaFile)
		}
		id := orRandom(configured)
		return id, writeMeta(dir, path, id)
	}
	if err != nil {
		return "", fmt.Errorf("reading whose data %s has: %w", dir, err)
	}
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	meta, err := loader.LoadBytes(text)
	if err != nil {
		return "", fmt.Errorf("%s is damaged: %w", path, err)
	}
	id := meta.GetString("cluster.id", "")
	switch {
	case meta.GetString("version", "") != "1" || id == "":
		return "", fmt.Errorf("%s is damaged or of a newer version: it needs version=1 and cluster.id", path)
	case configured != "" && configured != id:
		return "", fmt.Errorf("the data directory %s belongs to cluster %q, and cluster.id is %q; correct cluster.id or log.dirs", dir, id, configured)
	}
	return id, nil
}

func orRandom(id string) string {
	if id != "" {
		return id
	}
	var uuid [16]byte
	rand.Read(uuid[:]) //nolint:errcheck // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(uuid[:])
}

func writeMeta(dir, path, id string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = replaceFile(path, "version=1\nnode.id=0\ncluster.id="+id+"\n")
	}
	if err != nil {
		return fmt.Errorf("preparing the data directory (log.dirs): %w", err)
	}
	return nil
}

// replaceFile writes through a second file: a crash in between must not leave
// half a cluster id, nor lose it when kfake's own files stay.
func replaceFile(path, text string) error {
	err := writeSynced(path+".new", text)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
