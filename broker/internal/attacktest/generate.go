package attacktest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// World is what there is at a node that its requests may name. An attacker names
// each of it everywhere, a topic in the place of a group too.
type World struct {
	Topics    []Topic
	Groups    []string
	TxnIDs    []string
	Clusters  []string
	Users     []string
	Producers []Producer
}

// Topic is one that is there, or only its name.
type Topic struct {
	Name string
	ID   [16]byte
}

// Producer is one that the node has given out.
type Producer struct {
	ID    int64
	Epoch int16
}

// Shot is one frame to a node.
type Shot struct {
	ID    int32 // the correlation id
	Frame []byte
	// Request is what a node reads in it; nil: nothing that has an answer.
	Request kmsg.Request
	// Torn says that the frame does not end where it says, so that nothing sent
	// after it means what it should.
	Torn bool
	How  string
}

const (
	many       = 10_000
	longString = 1<<15 - 1 // the longest that every version can say
	// largestShot is about how long a request becomes by repetition.
	largestShot = 2 << 20
)

// Generator makes the requests of one attacker. The same source, the same APIs and
// a world of the same size give the same requests, but for what the world is
// called.
type Generator struct {
	r     *rand.Rand
	apis  []kmsg.ApiVersionsResponseApiKey
	world World
	room  int // what may be added to the request at hand, in bytes
}

// NewGenerator takes what ApiVersions shows.
func NewGenerator(r *rand.Rand, apis []kmsg.ApiVersionsResponseApiKey, world World) *Generator {
	apis = slices.SortedFunc(slices.Values(apis), func(a, b kmsg.ApiVersionsResponseApiKey) int { return cmp.Compare(a.ApiKey, b.ApiKey) })
	return &Generator{r: r, apis: apis, world: world}
}

// one chooses.
func one[T any](g *Generator, from []T) T { return from[g.r.IntN(len(from))] }

// chance is true once in n times.
func (g *Generator) chance(n int) bool { return g.r.IntN(n) == 0 }

// Next is the next shot, under a correlation id.
func (g *Generator) Next(id int32) Shot {
	s := g.next(id)
	s.ID = id
	return s
}

func (g *Generator) next(id int32) Shot {
	switch {
	case g.chance(40):
		return g.unknown(id)
	case g.chance(40):
		return g.garbage()
	}
	key, version := g.api()
	names := g.names()
	req := Filled(key, version, names)
	how := "as it should be"
	right := 1 // of eight
	if p, ok := req.(*kmsg.ProduceRequest); ok {
		g.produce(p, names)
		right = 5
	}
	g.room = largestShot
	leaves := leavesOf(reflect.ValueOf(req).Elem(), "", nil)
	switch n := g.r.IntN(8); {
	case n < right:
	case n == 7: // everything
		how = "all fields at their edges"
		for _, l := range leaves {
			g.edge(l)
		}
	default:
		var changes []string
		for n := 1 + g.r.IntN(3); n > 0 && len(leaves) > 0; n-- {
			l := one(g, leaves)
			changes = append(changes, fmt.Sprintf("%s is %s", l.path, g.edge(l)))
		}
		how = strings.Join(changes, ", ")
	}
	req.SetVersion(version)
	frame := g.format(req, id)
	if g.chance(12) {
		return g.mangled(frame, req, how)
	}
	return read(Shot{Frame: frame, How: how}, req)
}

// api is a key and a version of those served, and Produce more often than
// others: it leaves most behind.
func (g *Generator) api() (key, version int16) {
	k := one(g, g.apis)
	if g.chance(4) {
		k = g.apis[0] // Produce
	}
	return k.ApiKey, k.MinVersion + int16(g.r.IntN(int(k.MaxVersion-k.MinVersion)+1))
}

func (g *Generator) names() Names {
	topic, producer := one(g, g.world.Topics), one(g, g.world.Producers)
	n := Names{
		Topic: topic.Name, TopicID: topic.ID, Group: one(g, g.world.Groups),
		Producer: producer.ID, Epoch: producer.Epoch, Yes: g.chance(2),
		Limit: one(g, []string{"1", "1000000", "-1", "9223372036854775807"}),
	}
	if !g.chance(3) {
		n.TxnID = one(g, g.world.TxnIDs)
	}
	return n
}

// produce fills a Produce so that most of what it says is right.
func (g *Generator) produce(p *kmsg.ProduceRequest, n Names) {
	p.Acks = one(g, []int16{-1, -1, 1, 0})
	transactional := g.chance(3)
	p.TransactionID = nil
	if transactional {
		p.TransactionID = kmsg.StringPtr(n.TxnID)
	}
	p.Topics[0].Partitions[0].Partition = int32(g.r.IntN(3))
	p.Topics[0].Partitions[0].Records = g.records(n, transactional)
}

// format makes the frame, from a client with a name of some kind.
func (g *Generator) format(req kmsg.Request, id int32) []byte {
	client := kmsg.FormatterClientID("attacker")
	if g.chance(20) {
		client = kmsg.FormatterClientID(g.text())
	}
	return kmsg.NewRequestFormatter(client).AppendRequest(nil, req, id)
}

// bodyAt is where the body of a frame begins.
func bodyAt(frame []byte, flexible bool) int {
	at := 14 + int(int16(binary.BigEndian.Uint16(frame[12:])))
	if flexible {
		at++
	}
	return at
}

// read fills in what a node reads in a shot of a request.
func read(s Shot, of kmsg.Request) Shot {
	again := Default(of.Key(), of.GetVersion())
	s.How = fmt.Sprintf("%s v%d, %s", wire.NameForKey(of.Key()), of.GetVersion(), s.How)
	if again.ReadFrom(s.Frame[bodyAt(s.Frame, of.IsFlexible()):]) == nil {
		s.Request = again
	}
	return s
}

// mangled changes a frame after it was made.
func (g *Generator) mangled(frame []byte, req kmsg.Request, how string) Shot {
	at := bodyAt(frame, req.IsFlexible())
	switch n := g.r.IntN(5); {
	case n < 3 && at < len(frame):
		for range 1 + g.r.IntN(8) {
			frame[at+g.r.IntN(len(frame)-at)] = one(g, []byte{0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, byte(g.r.IntN(256))})
		}
		return read(Shot{Frame: frame, How: how + ", bytes changed"}, req)
	case n == 3:
		frame = frame[:4+g.r.IntN(len(frame)-4)]
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		return Shot{Frame: frame, Torn: true, How: fmt.Sprintf("%s v%d, cut off", wire.NameForKey(req.Key()), req.GetVersion())}
	default:
		size := one(g, []uint32{0, 1, 7, 8, uint32(len(frame)), uint32(len(frame) / 2), 1 << 20, 1<<31 - 1, 1 << 31, math.MaxUint32})
		binary.BigEndian.PutUint32(frame, size)
		return Shot{Frame: frame, Torn: true, How: fmt.Sprintf("%s v%d, said to have %d bytes", wire.NameForKey(req.Key()), req.GetVersion(), size)}
	}
}

// unknown is a request of a key or version that is not served.
func (g *Generator) unknown(id int32) Shot {
	key := one(g, []int16{-1, 4, 5, 6, 7, 52, 53, 58, 67, 82, 999, 1005, math.MaxInt16, math.MinInt16})
	version := one(g, []int16{-1, 0, 1, 99, math.MaxInt16, math.MinInt16})
	if g.chance(2) { // a key that is served
		k := one(g, g.apis)
		key, version = k.ApiKey, one(g, []int16{k.MinVersion - 1, k.MaxVersion + 1, math.MaxInt16, math.MinInt16})
	}
	frame := []byte{0, 0, 0, 0}
	frame = binary.BigEndian.AppendUint16(frame, uint16(key))
	frame = binary.BigEndian.AppendUint16(frame, uint16(version))
	frame = binary.BigEndian.AppendUint32(frame, uint32(id))
	frame = append(frame, 0xff, 0xff)
	frame = append(frame, g.noise(g.r.IntN(200))...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return Shot{Frame: frame, Torn: true, How: fmt.Sprintf("key %d v%d, not served", key, version)}
}

func (g *Generator) garbage() Shot {
	return Shot{Frame: g.noise(1 + g.r.IntN(4096)), Torn: true, How: "noise"}
}

func (g *Generator) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.r.Uint32())
	}
	return b
}

// leaf is a field of a request that can be set, or an array.
type leaf struct {
	path string
	reflect.Value
}

// leavesOf are the fields of a value and of what is below it.
func leavesOf(v reflect.Value, path string, to []leaf) []leaf {
	switch v.Kind() { //nolint:exhaustive // the others are set whole
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Version" && f.Name != "UnknownTags" {
				to = leavesOf(v.Field(i), path+"."+f.Name, to)
			}
		}
		return to
	case reflect.Pointer:
		to = append(to, leaf{path, v})
		if !v.IsNil() && v.Elem().Kind() != reflect.Struct {
			return to // a string that may be null
		}
		if !v.IsNil() {
			to = leavesOf(v.Elem(), path, to)
		}
		return to
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				to = leavesOf(v.Index(i), path, to)
			}
		}
	}
	return append(to, leaf{path, v})
}

// edge sets a field to something that breaks things, and says to what.
func (g *Generator) edge(l leaf) string {
	v := l.Value
	switch v.Kind() { //nolint:exhaustive // the others are not in requests
	case reflect.Pointer:
		if v.IsNil() || g.chance(3) {
			v.SetZero()
			return "null"
		}
		if v.Elem().Kind() == reflect.Struct {
			return "there"
		}
		return g.edge(leaf{l.path, v.Elem()})
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := g.bytes(strings.HasSuffix(l.path, ".Records"))
			v.SetBytes(b)
			return fmt.Sprintf("%d bytes", len(b))
		}
		return g.array(v)
	case reflect.Array:
		id := one(g, g.world.Topics).ID
		switch g.r.IntN(4) {
		case 0:
			clear(id[:])
		case 1:
			copy(id[:], g.noise(len(id)))
		}
		v.Set(reflect.ValueOf(id).Convert(v.Type()))
		return fmt.Sprintf("%x", id)
	case reflect.String:
		s := g.text()
		v.SetString(s)
		return fmt.Sprintf("%.40q (%d bytes)", s, len(s))
	case reflect.Bool:
		v.SetBool(!v.Bool())
		return fmt.Sprint(v.Bool())
	case reflect.Float64:
		v.SetFloat(one(g, []float64{0, -1, math.NaN(), math.Inf(1), math.MaxFloat64}))
		return fmt.Sprint(v.Float())
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(g.number(v.Type().Bits()))
		return fmt.Sprint(v.Int())
	}
	return "left"
}

// array repeats what an array has.
func (g *Generator) array(v reflect.Value) string {
	n := one(g, []int{0, 2, 3, 100, many})
	if g.chance(6) {
		v.SetZero()
		return "null"
	}
	if v.Len() == 0 && n > 0 {
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	}
	if n > 0 {
		n = max(1, min(n, g.room/weight(v.Index(0))))
		g.room -= n * weight(v.Index(0))
	}
	out := reflect.MakeSlice(v.Type(), n, n)
	for i := range n {
		out.Index(i).Set(v.Index(i % v.Len()))
	}
	v.Set(out)
	return fmt.Sprintf("repeated %d times", n)
}

// weight is about how long a value is in a request.
func weight(v reflect.Value) (n int) {
	switch v.Kind() { //nolint:exhaustive // the others are counted alike
	case reflect.Struct:
		for i := range v.NumField() {
			n += weight(v.Field(i))
		}
	case reflect.Pointer:
		n = 1
		if !v.IsNil() {
			n += weight(v.Elem())
		}
	case reflect.Slice:
		if n = 4; v.Type().Elem().Kind() == reflect.Uint8 {
			return n + v.Len()
		}
		for i := range v.Len() {
			n += weight(v.Index(i))
		}
	case reflect.String:
		n = 2 + v.Len()
	case reflect.Map: // unknown tags
	default:
		n = int(v.Type().Size())
	}
	return max(1, n)
}

// text is a string at some edge, or a name of something of any kind.
func (g *Generator) text() string {
	switch g.r.IntN(8) {
	case 0:
		return ""
	case 1:
		g.room = 0
		unit := one(g, []string{"x", "é", "(a*)*", "\x1b[2J"})
		return strings.Repeat(unit, longString>>g.r.IntN(8)/len(unit))
	case 2:
		return one(g, []string{"a\x00b", "\xff\xfe", "a\r\nb", "\x1b[31mred\x1b[0m", "../../etc/passwd", ".", "..", "*", "(", "(a|b){1000}", "a b", "%s%n"})
	case 3:
		return one(g, g.world.Groups)
	case 4:
		return one(g, g.world.TxnIDs)
	case 5:
		return one(g, g.world.Users)
	case 6:
		return one(g, g.world.Clusters)
	default:
		return one(g, g.world.Topics).Name
	}
}

// number is one at some edge, or one that means something to the node.
func (g *Generator) number(bits int) int64 {
	p := one(g, g.world.Producers)
	meant := []int64{p.ID, p.ID + 1, p.ID + 100}
	if bits == 16 {
		meant = []int64{int64(p.Epoch), int64(p.Epoch) + 1, int64(p.Epoch) + 100}
	}
	edges := []int64{0, 1, -1, -2, 2, 3, 100, 1000, 1 << 20, math.MaxInt8, math.MaxInt16, math.MaxInt16 - 1, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, 1 << (bits - 2)}
	n := one(g, append(edges, meant...))
	return n << (64 - bits) >> (64 - bits) // what fits
}

func (g *Generator) bytes(records bool) []byte {
	n := g.names()
	switch g.r.IntN(6) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return g.noise(g.r.IntN(100))
	case 3:
		if !records {
			g.room = 0
			return g.noise(longString)
		}
	}
	return g.records(n, g.chance(2))
}

// records are one batch, right more often than not.
func (g *Generator) records(n Names, transactional bool) []byte {
	b := kmsg.NewRecordBatch()
	b.Magic, b.ProducerID, b.ProducerEpoch, b.FirstSequence = 2, -1, -1, -1
	if transactional || g.chance(4) {
		b.ProducerID, b.ProducerEpoch, b.FirstSequence = n.Producer, n.Epoch, int32(g.r.IntN(3))
	}
	if transactional {
		b.Attributes = 0x10
	}
	count := 1 + g.r.IntN(5)
	wrong := g.r.IntN(6) // 0: the head, 1: a record, 2: bytes
	for i := range count {
		r := kmsg.NewRecord()
		r.OffsetDelta, r.Value = int32(i), g.noise(1+g.r.IntN(64))
		if g.chance(2) {
			r.Key = g.noise(8)
		}
		if wrong == 1 && g.chance(2) {
			g.edge(one(g, leavesOf(reflect.ValueOf(&r).Elem(), "", nil)))
		}
		r.Length = 0
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		if wrong == 1 && g.chance(4) {
			r.Length = int32(g.number(32))
		}
		b.Records = r.AppendTo(b.Records)
	}
	b.NumRecords, b.LastOffsetDelta = int32(count), int32(count-1)
	if wrong == 0 {
		var head []leaf
		for _, l := range leavesOf(reflect.ValueOf(&b).Elem(), "", nil) {
			if l.path != ".Records" && l.path != ".CRC" && l.path != ".Length" {
				head = append(head, l)
			}
		}
		g.edge(one(g, head))
	}
	raw := sealed(b)
	if wrong == 2 {
		switch g.r.IntN(4) {
		case 0:
			raw = raw[:g.r.IntN(len(raw))]
		case 1:
			raw = append(raw, raw...)
		default:
			raw[g.r.IntN(len(raw))] ^= byte(1 + g.r.IntN(255))
		}
	}
	return raw
}
