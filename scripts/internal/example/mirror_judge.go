package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// judge reads both clusters back and compares them with what the producers were
// told, and the group's records with them.
func (m *mirroring) judge(ctx context.Context, r *readers) error {
	var v verdict
	for _, way := range [][2]string{{"a", "b"}, {"b", "a"}} {
		source, target := way[0], way[1]
		topic := source + "." + orders
		if m.identity {
			topic = orders
		}
		v.add(m.compareOrder(ctx, source, orders, source))
		v.add(m.compareOrder(ctx, target, topic, source))
		done, left, err := m.behind(ctx, source, target)
		if err != nil {
			return err
		}
		m.say("the mirror's group %s on %s: at offset %d, %d behind", source+"->"+target, source, done, left)
		if left != 0 {
			v.add(fmt.Errorf("the position of %s->%s is %d behind", source, target, left))
		}
	}
	v.add(m.noLoops(ctx))
	if !m.identity {
		v.add(m.judgeReaders(r))
	}
	return v.err(m.world)
}

// compareOrder compares the records of one origin in a topic with what the
// origin's producer has committed: each once, in its order, in its partition.
func (m *mirroring) compareOrder(ctx context.Context, cluster, topic, origin string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	reader := readback.NewReader(m.clusters[cluster])
	defer reader.Close()
	records, err := reader.Topic(ctx, topic)
	if err != nil {
		return fmt.Errorf("read %s on %s: %w", topic, cluster, err)
	}
	var got [mirrorPartitions][]string
	alien := 0
	for _, rec := range records {
		switch {
		case strings.HasPrefix(rec.Value, origin+"-"):
			got[rec.Partition] = append(got[rec.Partition], rec.Value)
		case !m.identity:
			alien++
		}
	}
	return m.report(fmt.Sprintf("%s on %s, records of %s", topic, cluster, origin), got, m.sent[origin], alien)
}

// report says how two orders differ.
func (m *mirroring) report(what string, got [mirrorPartitions][]string, want *[mirrorPartitions][]string, alien int) error {
	n, disordered := 0, 0
	var d difference
	for p := range got {
		n += len(got[p])
		once := map[string]int{}
		for _, v := range want[p] {
			once[v] = 1
		}
		in := differ(got[p], once)
		d.missing, d.repeated, d.alien = d.missing+in.missing, d.repeated+in.repeated, d.alien+in.alien
		if !slices.Equal(got[p], want[p]) {
			disordered++
		}
	}
	d.alien += alien
	m.say("%s: %d records, %v, %d of %d partitions not in order", what, n, d, disordered, mirrorPartitions)
	if d != (difference{}) || disordered > 0 {
		return fmt.Errorf("%s: %v, %d partitions not in order", what, d, disordered)
	}
	return nil
}

// noLoops looks for topics and records that were sent back.
func (m *mirroring) noLoops(ctx context.Context) error {
	for name, adm := range m.adm {
		topics, err := adm.ListTopics(ctx)
		if err != nil {
			return err
		}
		want := []string{orders}
		if !m.identity {
			want = []string{map[string]string{"a": "b.", "b": "a."}[name] + orders, orders}
		}
		got := slices.DeleteFunc(topics.Names(), func(t string) bool { return !strings.Contains(t, orders) })
		m.say("topics on %s: %v", name, got)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return fmt.Errorf("topics on %s are %v, want %v", name, got, want)
		}
	}
	return nil
}

// judgeReaders: what the group has read on a and then on b is each record of a
// once.
func (m *mirroring) judgeReaders(r *readers) error {
	var all [mirrorPartitions][]string
	for p := range all {
		all[p] = append(slices.Clone(r.onA[p]), r.onB[p]...)
	}
	return m.report(fmt.Sprintf("group %q, %v", readersGroup, r), all, m.sent["a"], 0)
}
