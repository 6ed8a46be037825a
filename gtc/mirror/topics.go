package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mirrored is one topic of a flow that is there on both sides.
type mirrored struct {
	remote     string       // its name on the target
	id         kadm.TopicID // on the source
	partitions int          // on the target
}

// plan is what a flow mirrors, by the topic's name on the source.
type plan map[string]mirrored

// keeper keeps the topics of the target as those of the source are.
type keeper struct {
	flow           Flow
	policy         Policy
	source, target *side
	// bothWays: the target mirrors to the source too, under the same names.
	bothWays bool
	log      zerolog.Logger
}

// wanted reports whether the flow mirrors a topic of the source.
func (k *keeper) wanted(topic string, internal bool) bool {
	return !internal && !strings.HasPrefix(topic, "__") && k.flow.Topics.Match(topic) && !k.policy.cycle(topic, k.target.alias)
}

// refresh creates what is missing on the target, lets grow what has grown, and
// takes settings over. A topic that cannot be created is reported and left out,
// so that it does not keep the others.
func (k *keeper) refresh(ctx context.Context) (plan, error) {
	all, err := k.source.adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the topics of %s: %w", k.source.alias, err)
	}
	sources := map[string]kadm.TopicDetail{}
	var remotes []string
	for name, d := range all {
		if k.wanted(name, d.IsInternal) && d.Err == nil {
			sources[name] = d
			remotes = append(remotes, k.policy.RemoteTopic(k.source.alias, name))
		}
	}
	if len(sources) == 0 {
		return plan{}, nil
	}
	targets, err := k.target.adm.ListTopicsWithInternal(ctx, remotes...)
	if err != nil {
		return nil, fmt.Errorf("list the topics of %s: %w", k.target.alias, err)
	}
	settings, err := k.settings(ctx, k.source, slices.Collect(maps.Keys(sources)))
	if err != nil {
		return nil, err
	}
	p := plan{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		d, remote := sources[name], k.policy.RemoteTopic(k.source.alias, name)
		have := targets[remote]
		n, err := k.ensure(ctx, remote, d, have, settings[name])
		if err != nil {
			k.log.Error().Err(err).Str("topic", name).Str("remote", remote).Msg("the topic is not mirrored until this is mended")
			continue
		}
		p[name] = mirrored{remote: remote, id: d.ID, partitions: n}
	}
	return p, k.syncSettings(ctx, p, targets, settings)
}

// ensure creates a topic or lets it grow, and returns how many partitions it
// has then.
func (k *keeper) ensure(ctx context.Context, remote string, source, have kadm.TopicDetail, settings map[string]string) (int, error) {
	want := len(source.Partitions)
	switch {
	case have.Err == nil && len(have.Partitions) >= want:
		return len(have.Partitions), nil
	case have.Err == nil && len(have.Partitions) > 0:
		resp, err := k.target.adm.UpdatePartitions(ctx, want, remote)
		if err == nil {
			err = resp[remote].Err
		}
		// Another instance may have been faster.
		if err != nil && !errors.Is(err, kerr.InvalidPartitions) {
			return 0, fmt.Errorf("let %s grow to %d partitions on %s: %w", remote, want, k.target.alias, err)
		}
		k.log.Info().Str("remote", remote).Int("partitions", want).Msg("partitions added")
		return want, nil
	case have.Err != nil && !errors.Is(have.Err, kerr.UnknownTopicOrPartition):
		return 0, have.Err
	}
	// Mirrored records keep their timestamps, whatever the source's records
	// got theirs from.
	configs := map[string]*string{"message.timestamp.type": kadm.StringPtr("CreateTime")}
	for key, value := range settings {
		configs[key] = kadm.StringPtr(value)
	}
	_, err := k.target.adm.CreateTopic(ctx, int32(want), k.flow.ReplicationFactor, configs, remote)
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists): // another instance was faster
	case err != nil:
		return 0, fmt.Errorf("create %s on %s: %w", remote, k.target.alias, err)
	default:
		k.log.Info().Str("remote", remote).Int("partitions", want).Msg("topic created")
	}
	return want, nil
}

// settings are those set on the topics themselves, without what is excluded.
func (k *keeper) settings(ctx context.Context, s *side, topics []string) (map[string]map[string]string, error) {
	all, err := s.adm.DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("describe the topics of %s: %w", s.alias, err)
	}
	settings := map[string]map[string]string{}
	for _, rc := range all {
		if rc.Err != nil {
			return nil, fmt.Errorf("describe topic %s of %s: %w", rc.Name, s.alias, rc.Err)
		}
		settings[rc.Name] = map[string]string{}
		for _, c := range rc.Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil && !k.flow.ConfigsExclude.match(c.Key) {
				settings[rc.Name][c.Key] = *c.Value
			}
		}
	}
	return settings, nil
}

// syncSettings sets on the target what is set on the source, and unsets what is
// not. Not so where both clusters mirror one topic to one another: each would
// undo what was changed on the other.
func (k *keeper) syncSettings(ctx context.Context, p plan, before kadm.TopicDetails, want map[string]map[string]string) error {
	if !k.flow.SyncTopicConfigs || k.bothWays {
		return nil
	}
	var remotes []string
	for _, m := range p {
		if before[m.remote].Err == nil && len(before[m.remote].Partitions) > 0 { // else just created with them
			remotes = append(remotes, m.remote)
		}
	}
	if len(remotes) == 0 {
		return nil
	}
	have, err := k.settings(ctx, k.target, remotes)
	if err != nil {
		return err
	}
	for name, m := range p {
		changes := differ(want[name], have[m.remote])
		if _, known := have[m.remote]; !known || len(changes) == 0 {
			continue
		}
		resp, err := k.target.adm.AlterTopicConfigs(ctx, changes, m.remote)
		if err == nil {
			err = errors.Join(alterErrors(resp)...)
		}
		if err != nil {
			// The records are the same, so the mirror goes on.
			k.log.Error().Err(err).Str("topic", name).Str("remote", m.remote).Msg("settings were not taken over")
			continue
		}
		k.log.Info().Str("remote", m.remote).Int("settings", len(changes)).Msg("settings taken over")
	}
	return nil
}

func alterErrors(resp kadm.AlterConfigsResponses) (errs []error) {
	for _, r := range resp {
		errs = append(errs, r.Err)
	}
	return errs
}

// differ is what makes have to want. The timestamps' type is the mirror's own.
func differ(want, have map[string]string) []kadm.AlterConfig {
	var changes []kadm.AlterConfig
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, ok := have[key]; !ok || value != want[key] {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: kadm.StringPtr(want[key])})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[key]; !ok && key != "message.timestamp.type" {
			changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
		}
	}
	return changes
}

// keepTopics refreshes again and again, and when it is asked to.
func (l *life) keepTopics(ctx context.Context) {
	for {
		var answer chan<- error
		select {
		case <-ctx.Done():
			return
		case answer = <-l.ask:
		case <-l.clock.After(l.flow.RefreshTopicsInterval):
		}
		p, err := l.keeper.refresh(ctx)
		if err == nil {
			latest(l.plans, p)
		} else if ctx.Err() == nil {
			l.log.Warn().Err(err).Msg("the topics are as they were until they can be read")
		}
		if answer != nil {
			answer <- err
		}
	}
}

// refreshNow waits for a refresh and takes it.
func (l *life) refreshNow(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case l.ask <- answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.follow(<-l.plans)
}
