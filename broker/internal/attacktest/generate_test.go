package attacktest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// A failure names a seed, which is good for nothing unless it gives the same
// requests again. In some thousands of them every key comes.
func TestASeedGivesTheSameRequestsAgain(t *testing.T) {
	var apis []kmsg.ApiVersionsResponseApiKey
	for key := range int16(kmsg.MaxKey + 1) {
		if req := kmsg.RequestForKey(key); req != nil && key != int16(kmsg.ControlledShutdown) { // which has a head of its own
			apis = append(apis, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: req.MaxVersion()})
		}
	}
	for _, api := range wire.APIs() {
		if kmsg.RequestForKey(api.Key) == nil {
			apis = append(apis, kmsg.ApiVersionsResponseApiKey{ApiKey: api.Key, MaxVersion: api.MaxVersion})
		}
	}
	world := World{
		Topics: []Topic{{Name: "t", ID: [16]byte{1}}, {Name: "u"}}, Groups: []string{"g"}, TxnIDs: []string{"x"},
		Clusters: []string{"c"}, Users: []string{"User:u"}, Producers: []Producer{{ID: 1 << 40, Epoch: 3}},
	}
	shots := func(seed uint64) (all []Shot) {
		g := NewGenerator(rand.New(rand.NewPCG(seed, 0)), apis, world)
		for i := range int32(2000) {
			s := g.Next(i)
			s.Frame = s.Frame[:min(len(s.Frame), 1000)]
			all = append(all, s)
		}
		return all
	}
	first, second := shots(1), shots(1)
	keys := make(map[int16]bool)
	for i := range first {
		if !bytes.Equal(first[i].Frame, second[i].Frame) || first[i].How != second[i].How {
			t.Fatalf("request %d is %s, and was %s", i, second[i].How, first[i].How)
		}
		if r := first[i].Request; r != nil {
			keys[r.Key()] = true
		}
	}
	for _, k := range apis {
		if !keys[k.ApiKey] {
			t.Errorf("no %s", wire.NameForKey(k.ApiKey))
		}
	}
	if slices.EqualFunc(first, shots(2), func(a, b Shot) bool { return bytes.Equal(a.Frame, b.Frame) }) {
		t.Error("another seed gives the same")
	}
}
