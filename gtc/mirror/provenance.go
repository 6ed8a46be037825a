package mirror

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ProvenanceHeader is the key of the header that the mirror adds to each record.
// Its value is text,
//
//	source cluster id/topic/topic id/partition/offset[/origin cluster id]
//
// where source, topic, topic id (base64url, as Kafka prints it), partition and
// offset say where the mirror read the record, and origin is the cluster on
// which it was written first, when that is not the source. It is the last
// header of the record, and replaces that of an earlier hop.
//
// It serves three ends: a record is not sent back to where it came from, also
// when topics keep their names; group offsets are translated after a restart by
// a search on the target alone; and what the target holds tells, at a restart,
// how far the source was mirrored.
const ProvenanceHeader = "kafka-gtc.mirror"

// provenance is where a record was read by the mirror.
type provenance struct {
	source    string // cluster id
	topic     string
	topicID   [16]byte
	partition int32
	offset    int64
	origin    string // cluster id; the source's when it was written there
}

func (p provenance) header() kgo.RecordHeader {
	parts := []string{
		p.source, p.topic, base64.RawURLEncoding.EncodeToString(p.topicID[:]),
		strconv.FormatInt(int64(p.partition), 10), strconv.FormatInt(p.offset, 10),
	}
	if p.origin != p.source {
		parts = append(parts, p.origin)
	}
	return kgo.RecordHeader{Key: ProvenanceHeader, Value: []byte(strings.Join(parts, "/"))}
}

// provenanceOf reads the last header of a record. Not every one of that name is
// to be believed: an application that answers a record with all its headers
// copied writes a record of its own, which has to be mirrored like any other.
// The mirror writes in transactions, and the header of a copy usually names
// another topic or partition than the one it stands in. See cameBack for one
// that is written back into the very same.
func provenanceOf(r *kgo.Record, named func(topic string) bool) (provenance, bool) {
	if len(r.Headers) == 0 || !r.Attrs.IsTransactional() {
		return provenance{}, false
	}
	h := r.Headers[len(r.Headers)-1]
	if h.Key != ProvenanceHeader {
		return provenance{}, false
	}
	p, ok := parseProvenance(string(h.Value))
	return p, ok && p.partition == r.Partition && named(p.topic)
}

func parseProvenance(value string) (provenance, bool) {
	parts := strings.Split(value, "/")
	if len(parts) != 5 && len(parts) != 6 {
		return provenance{}, false
	}
	p := provenance{source: parts[0], topic: parts[1], origin: parts[0]}
	if len(parts) == 6 {
		p.origin = parts[5]
	}
	id, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(id) != len(p.topicID) {
		return provenance{}, false
	}
	copy(p.topicID[:], id)
	partition, err := strconv.ParseInt(parts[3], 10, 32)
	if err != nil {
		return provenance{}, false
	}
	p.partition = int32(partition)
	p.offset, err = strconv.ParseInt(parts[4], 10, 64)
	return p, err == nil && p.source != "" && p.origin != ""
}

// stamp gives the headers of the mirrored record: those of the source in their
// order, and the provenance in place of that of an earlier hop.
func stamp(headers []kgo.RecordHeader, earlierHop bool, p provenance) []kgo.RecordHeader {
	if earlierHop {
		headers = headers[:len(headers)-1]
	}
	return append(headers[:len(headers):len(headers)], p.header())
}
