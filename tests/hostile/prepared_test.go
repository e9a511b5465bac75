package hostile_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// TestAKillWhileLargerMapsArePreparedBreaksNoConnection kills the agent while it has larger maps at hand
// beside those in force, and programs for them in the verifier. Nothing of that stays: the next agent
// finds what was in force, and prepares them again.
func TestAKillWhileLargerMapsArePreparedBreaksNoConnection(t *testing.T) {
	d := newDrill(t, rand.New(rand.NewPCG(14, 1)))
	if held := frontendMaps(d.agent.PID()); len(held) != 1 {
		t.Fatalf("with %d frontends the agent holds %d maps of them, want 1", drillFrontends, len(held))
	}
	before := d.killPreparing()
	d.revive()
	d.awaitPreparation(before)
	d.awaitFrontends(d.crowd(room(before))) // more than there was room for
	d.judge(t)
}

// killPreparing kills the agent while it has larger maps at hand, and returns what is in force. On a
// busy machine the agent may have put them in force before it dies: then it has to grow again.
func (d *drill) killPreparing() *ebpf.MapInfo {
	d.tb.Helper()
	for range 3 {
		before := d.inForce()
		d.crowd(room(before) * 3 / 4)
		d.awaitPreparation(before)
		d.agent.Kill()
		if mapID(d.inForce()) == mapID(before) {
			return before
		}
		d.tb.Logf("maps larger than %d frontends are in force already", room(before))
		d.revive()
	}
	d.tb.Fatal("the agent never dies while it prepares larger maps")
	return nil
}

// crowd adds Services until there are more frontends than so many, and returns how many there are.
func (d *drill) crowd(frontends int) int {
	lots := (frontends-drillFrontends)/crowdOf + 1
	for i := range lots {
		d.agent.Write(fmt.Sprintf("crowd-%03d.yaml", i), crowd(i))
	}
	return drillFrontends + lots*crowdOf
}

// awaitPreparation returns when the agent holds a frontends map beside the one that was in force, or
// another one instead: that was prepared, too, as there was room for all.
func (d *drill) awaitPreparation(before *ebpf.MapInfo) {
	d.tb.Helper()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(2 * time.Millisecond) {
		held := frontendMaps(d.agent.PID())
		if delete(held, mapID(before)); len(held) > 0 {
			return
		}
	}
	d.tb.Fatal("the agent prepares no larger maps")
}

// inForce returns what the kernel says of the frontends map that is in force.
func (d *drill) inForce() *ebpf.MapInfo {
	d.tb.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(d.agent.Root, "maps", "frontends"), nil)
	if err != nil {
		d.tb.Fatal(err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		d.tb.Fatal(err)
	}
	return info
}

// room returns how many frontends a map takes, which has two places for each.
func room(m *ebpf.MapInfo) int { return int(m.MaxEntries / 2) }

func mapID(m *ebpf.MapInfo) ebpf.MapID {
	id, _ := m.ID() // every kernel that runs the programs says it
	return id
}

// frontendMaps returns the IDs of the frontends maps that a process holds.
func frontendMaps(pid int) map[ebpf.MapID]bool {
	ids := map[ebpf.MapID]bool{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid)) // the pattern is a good one
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is closed meanwhile
		}
		_, behind, found := strings.Cut(string(text), "map_id:")
		var id ebpf.MapID
		if _, err := fmt.Sscan(behind, &id); !found || err != nil {
			continue
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		if info, err := m.Info(); err == nil && info.Name == "frontends" {
			ids[id] = true
		}
		m.Close()
	}
	return ids
}
