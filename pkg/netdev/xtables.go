package netdev

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/netfilter_ipv4/ip_tables.h and linux/netfilter/x_tables.h, and what is the same
// for IPv6.
const (
	xtGetInfo    = 64
	xtGetEntries = 65
	xtNameLength = 32
	// xtEntriesStart is where entries begin in what xtGetEntries answers.
	xtEntriesStart = 40
	// xtTargetHead is the size of struct xt_entry_target, with its name from the third byte on.
	xtTargetHead, xtTargetName, xtTargetNameEnd = 32, 2, 31
)

// xtInfo is struct ipt_getinfo.
type xtInfo struct {
	Name              [xtNameLength]byte
	ValidHooks        uint32
	HookEntry, Underf [5]uint32
	Entries, Size     uint32
}

// xtFamily is iptables-legacy for a family of addresses.
type xtFamily struct {
	name          string
	domain, level int
	names         string // the file that lists tables
	offsets       int    // in an entry, where it says where its target and the next entry are
}

var (
	xtIP4 = xtFamily{"ip", unix.AF_INET, unix.IPPROTO_IP, "ip_tables_names", 88}
	xtIP6 = xtFamily{"ip6", unix.AF_INET6, unix.IPPROTO_IPV6, "ip6_tables_names", 140}
)

// chains returns those of the table nat.
func (f xtFamily) chains() ([]Chain, error) {
	const table = "nat"
	tables, err := xtables(f.names)
	if err != nil || !slices.Contains(tables, table) {
		return nil, err
	}
	entries, err := f.entries(table)
	if err != nil {
		return nil, fmt.Errorf("table %s of %s: %w", table, f.name, err)
	}
	// Whatever it holds, its own chains are hooked.
	all := []Chain{{Legacy: true, Family: f.name, Table: table, Hooked: true, NAT: true}}
	for _, name := range f.chainNames(entries) {
		all = append(all, Chain{Legacy: true, Family: f.name, Table: table, Name: name})
	}
	return all, nil
}

// entries returns the rules of a table as the kernel has them.
func (f xtFamily) entries(table string) ([]byte, error) {
	fd, err := unix.Socket(f.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var info xtInfo
	copy(info.Name[:], table)
	if err := f.get(fd, xtGetInfo, unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))); err != nil {
		return nil, err
	}
	answer := make([]byte, xtEntriesStart+int(info.Size))
	copy(answer, table)
	binary.NativeEndian.PutUint32(answer[xtNameLength:], info.Size)
	if err := f.get(fd, xtGetEntries, answer); err != nil { // EAGAIN: it changed meanwhile
		return nil, err
	}
	return answer[xtEntriesStart:], nil
}

func (f xtFamily) get(fd, option int, buffer []byte) error {
	size := uint32(len(buffer))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(f.level), uintptr(option),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// chainNames returns the chains that people have made: each begins with an entry whose
// target is ERROR, with the name. The last entry is one, too, of that name.
func (f xtFamily) chainNames(entries []byte) (names []string) {
	for len(entries) >= f.offsets+4 {
		target := int(binary.NativeEndian.Uint16(entries[f.offsets:]))
		next := int(binary.NativeEndian.Uint16(entries[f.offsets+2:]))
		if next <= target || next > len(entries) || target+xtTargetHead > next {
			return names
		}
		t := entries[target:next]
		if unix.ByteSliceToString(t[xtTargetName:xtTargetNameEnd]) == "ERROR" {
			if name := unix.ByteSliceToString(t[xtTargetHead:]); name != "ERROR" {
				names = append(names, name)
			}
		}
		entries = entries[next:]
	}
	return names
}
