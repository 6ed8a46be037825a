package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// Report says what Repair has found and done.
type Report struct {
	// Changed is false when the directory was as a clean stop leaves it.
	Changed bool
	// Open are the transactions that were open and still are.
	Open []Transaction
	// Finished are the transactions whose end had begun and is done now.
	Finished []Transaction
	// Offline are the partitions that must not be served.
	Offline []Offline
}

// Transaction is one transaction of a Report.
type Transaction struct {
	TransactionalID string
	ProducerID      int64
	ProducerEpoch   int16 // the one it was written under
	Partitions      int   // open ones; of a finished one those that Repair ended
	Groups          int   // consumer groups with staged offsets
	Commit          bool  // of a finished one: how it ended
}

// repair is one run: everything that was read, then what will be written.
type repair struct {
	dir    string
	now    time.Time
	log    zerolog.Logger
	topics []topicJSON
	// hasTopics: there is a list of topics, which may be empty.
	hasTopics bool
	starts    starts

	producers  producers
	pids       pidsLog
	groups     *groupsLog
	session    *session
	staged     stagedTxns
	journal    frames
	windows    windowsJSON
	partitions []*partition
	strays     []string // directories of partitions of no topic
	offline    []Offline

	open   map[int64]txnJSON
	report Report
}

// frames is how much of a framed log can be read.
type frames struct {
	path        string
	valid, size int
}

// Repair makes the data directory of a kfake that was not closed what Close
// would have made it; see the package comment. It must run before kfake opens
// the directory, and only then. now stamps what it writes. A directory that
// was closed, or that there is nothing in, is left untouched, and so a second
// run changes nothing.
//
// Errors: ErrLayout when the files are not those of the kfake that this package
// knows, ErrDamaged when acknowledged data is missing or broken; both name the
// file and leave it as it is. A partition of a client's topic that is damaged is no
// error but stays offline. Every other error is one of the file system.
func Repair(dir string, now time.Time, log zerolog.Logger) (Report, error) {
	r := &repair{dir: dir, now: now, log: log, open: make(map[int64]txnJSON)}
	fresh, err := r.checkLayout()
	if err != nil || fresh {
		return Report{}, err
	}
	if err := r.read(); err != nil {
		return Report{}, err
	}
	for _, p := range r.producers.sorted() {
		r.settle(p)
	}
	if err := r.write(); err != nil {
		return Report{}, err
	}
	log.Info().Str("dir", dir).Bool("changed", r.report.Changed).
		Int("open", len(r.report.Open)).Int("finished", len(r.report.Finished)).Msg("data directory checked")
	return r.report, nil
}

// checkLayout reports whether there is no data yet, and refuses what it does
// not know.
func (r *repair) checkLayout() (fresh bool, err error) {
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("durable: %w", err)
	}
	known := []string{
		metaFile, topicsFile, pidsFile, groupsFile, windowsFile, sessionFile,
		"acls.json", "sasl.json", "broker_configs.json", "quotas.json",
	}
	data := false
	for _, e := range entries {
		name := e.Name()
		if name == pidsFile || name == partitionsDir {
			data = true
		}
		if ext := filepath.Ext(name); (ext == ".json" || ext == ".log") && !slices.Contains(known, name) {
			return false, fmt.Errorf("%w: %s is no file of kfake's; if it is yours, keep it elsewhere", ErrLayout, filepath.Join(r.dir, name))
		}
	}
	var meta metaJSON
	found, err := readJSON(r.path(metaFile), &meta, &meta.Version)
	if err != nil {
		return false, err
	}
	if !found && data {
		return false, fmt.Errorf("%w: %s has data but no %s; kfake would begin anew on top of it", ErrLayout, r.dir, metaFile)
	}
	return !found, nil
}

func (r *repair) path(name string) string { return filepath.Join(r.dir, name) }

// read reads everything and writes nothing.
func (r *repair) read() (err error) {
	var topics topicsJSON
	if r.hasTopics, err = readJSON(r.path(topicsFile), &topics, &topics.Version); err != nil {
		return err
	}
	r.topics = topics.Topics
	if r.starts, err = readStarts(r.dir); err != nil {
		return err
	}
	if r.producers, r.pids, err = readPids(r.path(pidsFile)); err != nil {
		return err
	}
	if r.groups, err = readGroups(r.path(groupsFile)); err != nil {
		return err
	}
	if r.session, err = readSession(r.path(sessionFile)); err != nil {
		return err
	}
	if err := r.readJournal(); err != nil {
		return err
	}
	r.windows.Version = persistVersion
	if _, err := readJSON(r.path(windowsFile), &r.windows, &r.windows.Version); err != nil {
		return err
	}
	return r.readPartitions()
}

func (r *repair) readJournal() error {
	entries, valid, size, err := readFrames[journalEntry](r.path(journalFile))
	if err != nil {
		return err
	}
	names := make(map[string]string)
	for _, t := range r.topics {
		names[t.ID] = t.Name
	}
	r.staged = make(stagedTxns)
	for _, e := range entries {
		r.staged.apply(e, func(id string) string { return names[id] })
	}
	r.journal = frames{r.path(journalFile), valid, size}
	return nil
}

func (r *repair) readPartitions() error {
	dirs, err := os.ReadDir(r.path(partitionsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("durable: %w", err)
	}
	var names []string
	for _, d := range dirs {
		names = append(names, d.Name())
	}
	if err = r.bringBack(names); err != nil {
		return err
	}
	if dirs, err = os.ReadDir(r.path(partitionsDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("durable: %w", err)
	}
	strangers := make(map[string]bool, len(dirs))
	for _, d := range dirs {
		strangers[filepath.Join(r.path(partitionsDir), d.Name())] = true
	}
	for _, t := range r.topics {
		for n := range int32(t.Partitions) {
			delete(strangers, partitionDir(r.dir, t.Name, n))
			p, err := readPartition(r.dir, t, n, r.starts[startAt{t.ID, n}], r.producers)
			switch {
			case err == nil:
				r.partitions = append(r.partitions, p)
			case servesWithout(t.Name, err):
				r.offline = append(r.offline, Offline{Topic: t.Name, Partition: n, Dir: offlineDir(r.dir, t, n), Damage: err})
			default:
				return err
			}
		}
	}
	for dir := range strangers {
		if !strings.HasSuffix(dir, straySuffix) {
			r.strays = append(r.strays, dir)
		}
	}
	slices.Sort(r.strays)
	if len(r.strays) > 0 && !r.hasTopics {
		return fmt.Errorf("%w: there is %s, but no %s that says what topics there are; restore it from a copy",
			ErrDamaged, r.strays[0], r.path(topicsFile))
	}
	return nil
}

// straySuffix ends no name of a partition's directory, which ends in a number.
const straySuffix = "-stray"

// setAside renames the directories of no topic. One is left behind when the
// power fails while its topic is deleted; kfake would take the files for those
// of a new topic of the same name, and append to them.
func (r *repair) setAside() error {
	for _, dir := range r.strays {
		aside := fmt.Sprintf("%s.%d%s", dir, r.now.UnixNano(), straySuffix)
		r.log.Warn().Str("dir", dir).Str("now", aside).Msg("partition directory of no topic; set aside")
		if err := r.wrote(true, os.Rename(dir, aside)); err != nil {
			return fmt.Errorf("durable: %w", err)
		}
	}
	if len(r.strays) == 0 {
		return nil
	}
	return syncDir(r.path(partitionsDir))
}

// write puts down what was settled. The order is that of an EndTxn: control
// records, offsets, producers; each step can be done again, and what is
// decided does not depend on how many have been done.
func (r *repair) write() error {
	if err := r.setAside(); err != nil {
		return err
	}
	if err := r.takeOffline(); err != nil {
		return err
	}
	for _, p := range r.partitions {
		if err := r.wrote(p.flush()); err != nil {
			return err
		}
	}
	if err := r.wrote(r.groups.flush()); err != nil {
		return err
	}
	if err := r.wrote(r.flushWindows()); err != nil {
		return err
	}
	if err := r.wrote(r.session.flush(r.open, r.now)); err != nil {
		return err
	}
	if err := r.wrote(r.pids.flush(r.producers)); err != nil {
		return err
	}
	if len(r.starts) > 0 { // the snapshots have them now
		if err := r.wrote(true, errors.Join(os.Remove(r.path(startsFile)), syncDir(r.dir))); err != nil {
			return err
		}
	}
	if r.journal.valid < r.journal.size {
		return r.wrote(true, truncateFile(r.journal.path, int64(r.journal.valid)))
	}
	return nil
}

func (r *repair) wrote(changed bool, err error) error {
	r.report.Changed = r.report.Changed || changed
	return err
}

// flushWindows writes the sequence windows. Those of a partition to which
// nothing was appended since the last clean stop are exact, and know more than
// its log if that was trimmed; all others are made from the log, as Kafka does.
func (r *repair) flushWindows() (changed bool, err error) {
	type at struct {
		topic     string
		partition int32
	}
	exact := make(map[at]bool)
	for _, p := range r.partitions {
		exact[at{p.topic, p.number}] = p.unchanged()
	}
	want := windowsJSON{Version: persistVersion}
	for _, w := range r.windows.Windows {
		if exact[at{w.Topic, w.Partition}] {
			want.Windows = append(want.Windows, w)
		}
	}
	kept := r.producers.kept()
	for _, p := range r.partitions {
		if p.unchanged() {
			continue
		}
		for id, w := range p.windows {
			if _, ok := kept[id]; ok {
				want.Windows = append(want.Windows, *w)
			}
		}
	}
	if sameWindows(r.windows.Windows, want.Windows) {
		return false, nil
	}
	slices.SortFunc(want.Windows, compareWindows)
	return true, writeJSON(r.path(windowsFile), want)
}

func compareWindows(a, b windowJSON) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	if a.Partition != b.Partition {
		return int(a.Partition - b.Partition)
	}
	switch {
	case a.PID < b.PID:
		return -1
	case a.PID > b.PID:
		return 1
	}
	return 0
}

func sameWindows(a, b []windowJSON) bool {
	have := make(map[windowJSON]bool, len(a))
	for _, w := range a {
		have[w] = true
	}
	for _, w := range b {
		if !have[w] {
			return false
		}
	}
	return len(a) == len(b)
}
